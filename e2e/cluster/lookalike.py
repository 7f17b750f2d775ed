"""Builds the libstdc++ look-alike of an old distribution, for the image that check_env must refuse.

It knows the source in images/old-libstdcxx, not what check_env reads from it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from cluster.commands import run
from cluster.layout import cache_folder
from cluster.prerequisites import COMPILER_PROGRAMS, ensure_programs

LIBRARY = "libstdc++.so.6.0.28"


def build(source: Path) -> Path:
    """The folder, usable as a build context, that holds the library."""
    ensure_programs(COMPILER_PROGRAMS)
    folder = cache_folder() / "images" / "old-libstdcxx"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run(
        ["gcc", "-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libstdc++.so.6",
         f"-Wl,--version-script={source / 'versions.map'}", "-o", folder / LIBRARY,
         source / "symbols.c"],
        remedy="check that gcc works",
    )  # fmt: skip
    return folder
