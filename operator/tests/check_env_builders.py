"""Makes the files that the tests of check_env look at: shared objects with chosen versions, and ELF by hand."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rampway_check_env.machine import Machine

Placer = Callable[[str], int]
"""Puts a name into the string table and returns its offset."""

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(
    GCC is None, reason="gcc is not in PATH: shared objects with chosen versions cannot be made"
)


def build(target: Path, source: str, *flags: str) -> Path:
    """Compile C `source` into the shared object `target`."""
    assert GCC is not None
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target.with_name(target.name + ".c")
    file.write_text(source, encoding="utf-8")
    command = [GCC, "-shared", "-fPIC", "-w", "-o", str(target), str(file), *flags]
    subprocess.run(command, check=True, capture_output=True)
    return target


def versioned(target: Path, soname: str, versions: Sequence[str]) -> Path:
    """Compile a shared object that offers these symbol versions, one function in each."""
    functions, script, before = [], [], ""
    for number, version in enumerate(versions):
        functions.append(f"int f{number}(void) {{ return {number}; }}")
        script.append(f"{version} {{ global: f{number}; }}{before};")
        before = f" {version}"
    file = target.with_name(target.name + ".map")
    target.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(script), encoding="utf-8")
    flags = ["-nostdlib", f"-Wl,-soname,{soname}", f"-Wl,--version-script={file}"]
    return build(target, "\n".join(functions), *flags)


def needing(target: Path, provider: Path, calls: Sequence[int], *flags: str) -> Path:
    """Compile a shared object that calls functions of `provider`, and so needs their versions."""
    declared = "".join(f"int f{n}(void); " for n in calls)
    called = " + ".join(f"f{n}()" for n in calls)
    source = f"{declared} int use(void) {{ return {called}; }}"
    return build(target, source, str(provider), "-nostdlib", *flags)


def glibcxx(highest: int) -> list[str]:
    """Return the version names of a libstdc++ whose highest is GLIBCXX_3.4.<highest>."""
    numbered = [f"GLIBCXX_3.4.{n}" for n in range(1, highest + 1)]
    return ["GLIBCXX_3.4", *numbered, "CXXABI_1.3", "CXXABI_1.3.9"]


def machine(*, root: str = "", modules: Sequence[Path] = (), **environ: str) -> Machine:
    """Return this machine's python with another root, other modules and another environment."""
    base = {"PATH": "/usr/bin:/bin"}
    return Machine(
        root=root,
        environ={**base, **environ},
        executable=sys.executable if not root else "",
        module_path=tuple(map(str, modules)),
    )


@dataclass
class Elf:
    """An ELF file made by hand, so that every class and byte order can be read anywhere."""

    bits: int = 64
    order: str = "<"
    soname: str = "libx.so.1"
    needed: Sequence[str] = ()
    runpath: str = ""
    interpreter: str = ""
    defines: Sequence[str] = ()
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def pack(self) -> bytes:
        """Return the bytes: headers, strings, version tables, dynamic segment; addresses equal offsets."""
        strings = bytearray(b"\0")
        places: dict[str, int] = {}

        def place(text: str) -> int:
            if text not in places:
                places[text] = len(strings)
                strings.extend(text.encode() + b"\0")
            return places[text]

        definitions = self._definitions(place)
        requirements = self._requirements(place)
        tags = [(14, place(self.soname))] + [(1, place(name)) for name in self.needed]
        tags += [(29, place(self.runpath))] if self.runpath else []
        header, entry = (52, 32) if self.bits == 32 else (64, 56)
        start = header + 3 * entry
        interpreter = place(self.interpreter)
        at_definitions = start + len(strings)
        at_requirements = at_definitions + len(definitions)
        at_dynamic = at_requirements + len(requirements)
        tags += [(5, start), (10, len(strings))]
        if self.defines:
            tags += [(0x6FFFFFFC, at_definitions), (0x6FFFFFFD, len(self.defines) + 1)]
        if self.needs:
            tags += [(0x6FFFFFFE, at_requirements), (0x6FFFFFFF, len(self.needs))]
        word = "I" if self.bits == 32 else "Q"
        dynamic = b"".join(self._pack(word * 2, tag, value) for tag, value in [*tags, (0, 0)])
        size = at_dynamic + len(dynamic)
        segments = self._segment(1, 0, size) + self._segment(2, at_dynamic, len(dynamic))
        name = (start + interpreter, len(self.interpreter) + 1)
        segments += self._segment(3 if self.interpreter else 0, *name)
        return (
            self._header(header, entry)
            + segments
            + bytes(strings)
            + definitions
            + requirements
            + dynamic
        )

    def _header(self, size: int, entry: int) -> bytes:
        ident = b"\x7fELF" + bytes([self.bits // 32, 1 if self.order == "<" else 2, 1]) + bytes(9)
        word = "I" if self.bits == 32 else "Q"
        fields = (3, 62, 1, 0, size, 0, 0, size, entry, 3, 0, 0, 0)
        return ident + self._pack("HHI" + word * 3 + "IHHHHHH", *fields)

    def _segment(self, kind: int, at: int, size: int) -> bytes:
        if self.bits == 32:
            return self._pack("IIIIIIII", kind, at, at, at, size, size, 4, 1)
        return self._pack("IIQQQQQQ", kind, 4, at, at, at, size, size, 1)

    def _definitions(self, place: Placer) -> bytes:
        names = [self.soname, *self.defines] if self.defines else []
        table = b""
        for index, name in enumerate(names):
            step = 28 if index + 1 < len(names) else 0
            table += self._pack("HHHHIII", 1, 1 if index == 0 else 0, index + 1, 1, 0, 20, step)
            table += self._pack("II", place(name), 0)
        return table

    def _requirements(self, place: Placer) -> bytes:
        table = b""
        for index, (soname, versions) in enumerate(self.needs.items()):
            last = index + 1 == len(self.needs)
            step = 0 if last else 16 + 16 * len(versions)
            table += self._pack("HHIII", 1, len(versions), place(soname), 16, step)
            for number, version in enumerate(versions):
                flags = 2 if version.endswith("?") else 0
                following = 16 if number + 1 < len(versions) else 0
                table += self._pack("IHHII", 0, flags, 2, place(version.rstrip("?")), following)
        return table

    def _pack(self, layout: str, *values: int) -> bytes:
        return struct.pack(self.order + layout, *values)
