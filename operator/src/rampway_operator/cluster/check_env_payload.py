"""Packs `rampway_check_env` into one file that any image's python3 can run.

It does not know what is checked. The same sources give the same bytes, so the ConfigMap never changes.
"""

from __future__ import annotations

import base64
import functools
import io
import zipfile
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

__all__ = ["SIZE_LIMIT", "check_env_base64", "pack_check_env"]

SIZE_LIMIT: Final = 100 * 1024
PACKAGE: Final = "rampway_check_env"
EPOCH: Final = (1980, 1, 1, 0, 0, 0)
SHEBANG: Final = b"#!/usr/bin/env python3\n"
ENTRY: Final = f"import runpy\nrunpy.run_module({PACKAGE!r}, run_name='__main__', alter_sys=True)\n"


def pack_check_env() -> bytes:
    """The zipapp. Raises ValueError when it is larger than SIZE_LIMIT bytes."""
    packed = io.BytesIO()
    packed.write(SHEBANG)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        _add(archive, "__main__.py", ENTRY.encode())
        for path, content in sorted(_sources(resources.files(PACKAGE), PACKAGE)):
            _add(archive, path, content)
    content = packed.getvalue()
    if len(content) > SIZE_LIMIT:
        raise ValueError(f"check_env is too large: got {len(content)} B, need <= {SIZE_LIMIT} B")
    return content


@functools.cache
def check_env_base64() -> str:
    """The zipapp as a ConfigMap's binaryData wants it."""
    return base64.b64encode(pack_check_env()).decode("ascii")


def _sources(folder: Traversable, path: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for entry in folder.iterdir():
        inner = f"{path}/{entry.name}"
        if entry.is_dir() and entry.name != "__pycache__":
            found += _sources(entry, inner)
        elif entry.name.endswith(".py"):
            found.append((inner, entry.read_bytes()))
    return found


def _add(archive: zipfile.ZipFile, path: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(path, date_time=EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
