"""Imports single modules of a package without the rest of it: everything else is an empty module.

Knows no peer: each adapter says where its files lie and which modules are real.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["stand_in"]


class _Empty(types.ModuleType):
    """A module in which every name is a class that does nothing."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(
            name,
            (),
            {
                "__class_getitem__": classmethod(lambda cls, _: cls),
                "__getattr__": lambda _self, _name: lambda *_args, **_kwargs: None,
            },
        )
        setattr(self, name, made)
        return made


class _Finder:
    """Finds the real modules of one package in a folder, and makes up the others."""

    def __init__(self, package: str, folder: Path, real: Iterable[str]) -> None:
        self._package = package
        self._folder = folder
        self._real = frozenset(real)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        """Return where a module comes from; None for other packages."""
        del path, target
        if name.partition(".")[0] != self._package:
            return None
        if name in self._real:
            file = self._folder.joinpath(*name.split(".")).with_suffix(".py")
            return importlib.util.spec_from_file_location(name, file)
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> Any:
        """Return an empty module."""
        module = _Empty(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def stand_in(package: str, folder: Path, real: Iterable[str]) -> None:
    """Make `package` importable from `folder`: only the modules in `real` are themselves."""
    sys.meta_path.insert(0, _Finder(package, folder, real))
