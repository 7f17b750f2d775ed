"""Finds the file that the dynamic loader would load for a name, without loading anything.

It follows ld.so(8): RPATH of the asker and of its askers (where they have no RUNPATH), LD_LIBRARY_PATH,
RUNPATH, ld.so.cache, default folders; what is in the process already wins by its soname. It does not
know what the names are good for. Not modelled: LD_PRELOAD and glibc-hwcaps folders.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from rampway_check_env.elf import ElfError, ElfObject, read_elf
from rampway_check_env.ldcache import parse_ld_cache
from rampway_check_env.machine import Machine

__all__ = ["Loader"]

_MAX_CACHE = 1 << 25
_MAX_OBJECTS = 4096
_MUSL_PATHS = ("/lib", "/usr/local/lib", "/usr/lib")
_TRIPLETS = {
    62: "x86_64-linux-gnu",
    183: "aarch64-linux-gnu",
    21: "powerpc64le-linux-gnu",
    243: "riscv64-linux-gnu",
    3: "i386-linux-gnu",
}
"""Debian's folder by ELF machine number."""


class Loader:
    """The dynamic loader's view of one image, from its python. Results are kept for the life of the object."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._objects: Dict[str, Optional[ElfObject]] = {}
        self._cache: Optional[Dict[str, List[str]]] = None
        real = str(Path(machine.real(machine.executable)).resolve()) if machine.executable else ""
        self.python_path = real[len(machine.root) :]
        self.python = self.read(self.python_path) if self.python_path else None

    @property
    def is_musl(self) -> bool:
        """Whether this python is linked with musl instead of glibc."""
        return self.python is not None and "ld-musl" in self.python.interpreter

    def read(self, path: str) -> Optional[ElfObject]:
        """The object at `path`; None where it is no readable ELF file."""
        if path not in self._objects:
            try:
                self._objects[path] = read_elf(self._machine.real(path), shown_as=path)
            except (ElfError, OSError):
                self._objects[path] = None
        return self._objects[path]

    def in_python(self) -> Dict[str, str]:
        """Paths by soname of what is in the process before anything is imported."""
        return self._closure(self.python, {}) if self.python else {}

    def loaded_with(self, path: str) -> Dict[str, str]:
        """Paths by soname of what is in the process after importing the extension at `path`."""
        target = self.read(path)
        already = self.in_python()
        return self._closure(target, already) if target else already

    def from_python(self, soname: str) -> Optional[str]:
        """The file a bare `dlopen(soname)` in this python would load."""
        already = self.in_python()
        if soname in already:
            return already[soname]
        chain = [self.python] if self.python else []
        return self._find(soname, chain)

    def _closure(self, root: ElfObject, already: Dict[str, str]) -> Dict[str, str]:
        """Breadth first, as ld.so does: the first object of a soname serves all who need it."""
        found = dict(already)
        queue: List[Tuple[ElfObject, Tuple[ElfObject, ...]]] = [(root, ())]
        visited = 0
        while queue and visited < _MAX_OBJECTS:
            current, askers = queue.pop(0)
            visited += 1
            for soname in current.needed:
                if soname in found:
                    continue
                chain = (current, *askers)
                path = self._find(soname, chain)
                if path is None:
                    continue
                found[soname] = path
                child = self.read(path)
                if child is not None:
                    queue.append((child, chain))
        return found

    def _find(self, soname: str, chain: Sequence[ElfObject]) -> Optional[str]:
        """The file for `soname` asked for by `chain[0]`, which `chain[1]` asked for, and so on."""
        if "/" in soname:
            return soname if self._fits(soname) else None
        for folder in self._folders(chain):
            path = folder.rstrip("/") + "/" + soname
            if self._fits(path):
                return path
        for path in () if self.is_musl else self._cached(soname):
            if self._fits(path):
                return path
        return next(
            (p for p in (f + "/" + soname for f in self._defaults()) if self._fits(p)), None
        )

    def _folders(self, chain: Sequence[ElfObject]) -> Iterable[str]:
        asker = chain[0] if chain else None
        if asker is not None and not asker.runpath:
            askers = list(chain)
            if self.python is not None and self.python not in askers:
                askers.append(self.python)
            for one in askers:
                if not one.runpath:
                    yield from self._expand(one.rpath, one)
        library_path = self._machine.environ.get("LD_LIBRARY_PATH", "").replace(";", ":")
        yield from self._expand([p for p in library_path.split(":") if p], asker)
        if asker is not None:
            yield from self._expand(asker.runpath, asker)

    def _expand(self, folders: Iterable[str], owner: Optional[ElfObject]) -> Iterable[str]:
        origin = str(PurePosixPath(owner.path).parent) if owner else ""
        lib = "lib64" if owner is not None and owner.bits == 64 else "lib"
        for folder in folders:
            text = folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
            yield text.replace("${LIB}", lib).replace("$LIB", lib)

    def _fits(self, path: str) -> bool:
        """Whether `path` is an object of python's own kind; others are passed over as ld.so does."""
        found = self.read(path)
        if found is None or self.python is None:
            return found is not None
        return (found.bits, found.machine, found.little_endian) == (
            self.python.bits,
            self.python.machine,
            self.python.little_endian,
        )

    def _cached(self, soname: str) -> Sequence[str]:
        if self._cache is None:
            self._cache = parse_ld_cache(
                self._machine.read_bytes("/etc/ld.so.cache", limit=_MAX_CACHE) or b""
            )
        return self._cache.get(soname, ())

    def _defaults(self) -> Sequence[str]:
        if self.is_musl:
            return _MUSL_PATHS
        triplet = _TRIPLETS.get(self.python.machine, "") if self.python else ""
        multiarch = ["/lib/" + triplet, "/usr/lib/" + triplet] if triplet else []
        return [*multiarch, "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
