"""Reads from a shared object what the dynamic loader reads: names, search paths, symbol versions.

It works from the dynamic segment, as the loader does, for 32 and 64 bit and both byte orders, and never
trusts a number in the file. It does not know where other objects are (`loader.py`).
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Dict, List, Tuple

__all__ = ["ElfError", "ElfObject", "NeededVersion", "read_elf"]

_MAX_TABLE = 1 << 24
"""Bytes of any one table that are read at most; the largest string tables seen are a tenth of it."""
_MAX_ENTRIES = 1 << 16
_MAX_NAME = 4096

_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2


class ElfError(Exception):
    """The file is no shared object or contradicts itself; the text says where."""


@dataclass(frozen=True)
class NeededVersion:
    """A symbol version that must exist in another object; a weak one may be missing."""

    name: str
    weak: bool


@dataclass(frozen=True)
class ElfObject:
    """What the loader knows of one object. Paths are as written, with $ORIGIN unexpanded."""

    path: str
    bits: int
    little_endian: bool
    machine: int
    interpreter: str = ""
    soname: str = ""
    needed: Tuple[str, ...] = ()
    rpath: Tuple[str, ...] = ()
    runpath: Tuple[str, ...] = ()
    defines: Tuple[str, ...] = ()
    """Symbol versions that this object offers; its own name (the base version) is left out."""
    needs: Dict[str, Tuple[NeededVersion, ...]] = field(default_factory=dict)
    """Symbol versions needed, by the soname that must offer them."""


def read_elf(path: str, *, shown_as: str = "") -> ElfObject:
    """The object at `path`.

    Raises:
        ElfError: it is not ELF, is truncated, or its tables contradict each other.
        OSError: it cannot be read.

    """
    with Path(path).open("rb") as stream:
        return _Reader(stream, shown_as or path).read()


@dataclass
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


class _Reader:
    """One pass over one file. Every read is checked against the file's size first."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._stream = stream
        self._path = path
        self._size = os.fstat(stream.fileno()).st_size
        self._order = "<"
        self._bits = 64
        self._segments: List[_Segment] = []
        self._strings = b""

    def read(self) -> ElfObject:
        machine = self._read_header()
        tags = self._read_dynamic()
        names = {
            tag: [self._string(at) for at in tags.get(tag, [])]
            for tag in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)
        }
        return ElfObject(
            path=self._path,
            bits=self._bits,
            little_endian=self._order == "<",
            machine=machine,
            interpreter=self._interpreter(),
            soname=names[_DT_SONAME][0] if names[_DT_SONAME] else "",
            needed=tuple(names[_DT_NEEDED]),
            rpath=_split(names[_DT_RPATH]),
            runpath=_split(names[_DT_RUNPATH]),
            defines=self._definitions(tags),
            needs=self._needs(tags),
        )

    def _bytes(self, offset: int, size: int, what: str) -> bytes:
        if size > _MAX_TABLE or offset < 0 or size < 0 or offset + size > self._size:
            raise ElfError(
                "%s: %s lies outside the file (offset %d, %d bytes of %d)"
                % (self._path, what, offset, size, self._size)
            )
        self._stream.seek(offset)
        data = self._stream.read(size)
        if len(data) != size:
            raise ElfError("%s: %s is truncated" % (self._path, what))
        return data

    def _unpack(self, layout: str, offset: int, what: str) -> Tuple[int, ...]:
        layout = self._order + layout
        return struct.unpack(layout, self._bytes(offset, struct.calcsize(layout), what))

    def _read_header(self) -> int:
        ident = self._bytes(0, 16, "the ELF identification")
        if ident[:4] != b"\x7fELF":
            raise ElfError("%s: not an ELF file" % self._path)
        if ident[4] not in (1, 2) or ident[5] not in (1, 2):
            raise ElfError(
                "%s: unknown ELF class %d or byte order %d" % (self._path, ident[4], ident[5])
            )
        self._bits = 32 if ident[4] == 1 else 64
        self._order = "<" if ident[5] == 1 else ">"
        word = "I" if self._bits == 32 else "Q"
        fields = self._unpack("HHI" + word * 3 + "IHHHHHH", 16, "the ELF header")
        machine, table, entry_size, count = fields[1], fields[4], fields[8], fields[9]
        for index in range(count):
            self._segments.append(self._segment(table + index * entry_size))
        return machine

    def _segment(self, offset: int) -> _Segment:
        if self._bits == 64:
            kind, _, at, address, _, size = self._unpack("IIQQQQ", offset, "a program header")
        else:
            kind, at, address, _, size = self._unpack("IIIII", offset, "a program header")
        return _Segment(kind, at, address, size)

    def _interpreter(self) -> str:
        for segment in self._segments:
            if segment.kind == _PT_INTERP:
                size = min(segment.size, _MAX_NAME)
                return (
                    self._bytes(segment.offset, size, "the interpreter")
                    .split(b"\0")[0]
                    .decode("utf-8", "replace")
                )
        return ""

    def _file_offset(self, address: int, what: str) -> int:
        for segment in self._segments:
            if (
                segment.kind == _PT_LOAD
                and segment.address <= address < segment.address + segment.size
            ):
                return segment.offset + address - segment.address
        raise ElfError("%s: %s at address %#x lies in no segment" % (self._path, what, address))

    def _read_dynamic(self) -> Dict[int, List[int]]:
        tags: Dict[int, List[int]] = {}
        dynamic = next((s for s in self._segments if s.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return tags
        width = 8 if self._bits == 32 else 16
        data = self._bytes(
            dynamic.offset, min(dynamic.size, _MAX_ENTRIES * width), "the dynamic segment"
        )
        layout = self._order + ("II" if self._bits == 32 else "QQ")
        for at in range(0, len(data) - width + 1, width):
            tag, value = struct.unpack_from(layout, data, at)
            if tag == 0:
                break
            tags.setdefault(tag, []).append(value)
        if _DT_STRTAB in tags:
            start = self._file_offset(tags[_DT_STRTAB][0], "the string table")
            size = tags.get(_DT_STRSZ, [0])[0]
            self._strings = self._bytes(start, size, "the string table")
        return tags

    def _string(self, at: int) -> str:
        end = self._strings.find(b"\0", at, at + _MAX_NAME)
        if at >= len(self._strings) or end < 0:
            raise ElfError(
                "%s: a name at %d lies outside the string table of %d bytes"
                % (self._path, at, len(self._strings))
            )
        return self._strings[at:end].decode("utf-8", "replace")

    def _definitions(self, tags: Dict[int, List[int]]) -> Tuple[str, ...]:
        names = []
        offset, count = self._table(tags, _DT_VERDEF, _DT_VERDEFNUM, "the version definitions")
        for _ in range(count):
            _, flags, _, aux_count, _, aux, step = self._unpack(
                "HHHHIII", offset, "a version definition"
            )
            if aux_count and not flags & _VER_FLG_BASE:
                name, _ = self._unpack("II", offset + aux, "the name of a version definition")
                names.append(self._string(name))
            if step == 0:
                break
            offset += step
        return tuple(names)

    def _needs(self, tags: Dict[int, List[int]]) -> Dict[str, Tuple[NeededVersion, ...]]:
        needs: Dict[str, Tuple[NeededVersion, ...]] = {}
        left = _MAX_ENTRIES
        offset, count = self._table(tags, _DT_VERNEED, _DT_VERNEEDNUM, "the needed versions")
        for _ in range(count):
            _, aux_count, file, aux, step = self._unpack("HHIII", offset, "a needed version")
            versions = []
            at = offset + aux
            for _ in range(aux_count):
                left -= 1
                if left < 0:
                    raise ElfError("%s: more than %d needed versions" % (self._path, _MAX_ENTRIES))
                _, flags, _, name, aux_step = self._unpack(
                    "IHHII", at, "the name of a needed version"
                )
                versions.append(NeededVersion(self._string(name), bool(flags & _VER_FLG_WEAK)))
                if aux_step == 0:
                    break
                at += aux_step
            soname = self._string(file)
            needs[soname] = needs.get(soname, ()) + tuple(versions)
            if step == 0:
                break
            offset += step
        return needs

    def _table(
        self, tags: Dict[int, List[int]], where: int, how_many: int, what: str
    ) -> Tuple[int, int]:
        if where not in tags:
            return 0, 0
        count = tags.get(how_many, [0])[0]
        if count > _MAX_ENTRIES:
            raise ElfError("%s: %s claim %d entries" % (self._path, what, count))
        return self._file_offset(tags[where][0], what), count


def _split(paths: List[str]) -> Tuple[str, ...]:
    return tuple(part for path in paths for part in path.split(":") if part)
