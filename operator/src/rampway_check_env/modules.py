"""Finds where a package is installed, and its shared objects, without importing anything of it.

It does not know what the objects need (`loader.py`).
"""

from __future__ import annotations

import importlib.machinery
import os
import re
from pathlib import Path
from typing import Iterable, Optional, Sequence, Set, Tuple

__all__ = ["installed_version", "package_folders", "shared_objects"]

_MAX_FILES = 512
_SHARED_OBJECT = re.compile(r".+\.so(\.[0-9]+)*")


def package_folders(name: str, module_path: Sequence[str]) -> Tuple[str, ...]:
    """Folders of the top-level package `name`; empty where it is not installed."""
    try:
        spec = importlib.machinery.PathFinder.find_spec(name, list(module_path))
    except (ImportError, ValueError, AttributeError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(spec.submodule_search_locations)
    return (str(Path(spec.origin).parent),) if spec.origin else ()


def shared_objects(
    name: str, module_path: Sequence[str], folders: Sequence[str] = ("",)
) -> Tuple[str, ...]:
    """Shared objects of the dotted module `name`, sorted, at most 512.

    `folders` limits the search to some folders inside the package; "" is the package itself, all of it.
    """
    top, _, rest = name.partition(".")
    found: Set[str] = set()
    for base in package_folders(top, module_path):
        inner = Path(base, *rest.split(".")) if rest else Path(base)
        if rest and not inner.is_dir():
            found.update(f for f in _listed(inner.parent, deep=False) if _stem(f) == inner.name)
            continue
        for folder in folders:
            found.update(_listed(inner / folder, deep=folder == ""))
    return tuple(sorted(found)[:_MAX_FILES])


def _stem(path: str) -> str:
    return Path(path).name.partition(".")[0]


def _listed(folder: Path, *, deep: bool) -> Iterable[str]:
    for parent, _, files in os.walk(folder):
        yield from (str(Path(parent, f)) for f in files if _SHARED_OBJECT.fullmatch(f))
        if not deep:
            return


def installed_version(distribution: str, module_path: Sequence[str]) -> Optional[str]:
    """Version of an installed distribution by its metadata folder; None where there is none."""
    name = re.escape(distribution).replace("\\-", "[-_.]")
    pattern = re.compile(name + r"-([^-]+)\.(dist-info|egg-info)", re.IGNORECASE)
    for folder in module_path:
        try:
            names = sorted(path.name for path in Path(folder).iterdir())
        except OSError:
            continue
        for match in filter(None, map(pattern.fullmatch, names)):
            return match.group(1)
    return None
