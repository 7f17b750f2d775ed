"""Packs this package into one runnable zip archive, small enough for a ConfigMap.

Equal sources give equal bytes, so that the archive can be part of an immutable object. It does not know
where the archive goes.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

__all__ = ["bundle"]

_PACKAGE = "rampway_check_env"
_NOT_NEEDED = ("bundle.py", "__main__.py")
_MAIN = "from rampway_check_env.cli import main\n\nraise SystemExit(main())\n"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip archive can hold; archives must not depend on file times."""


def bundle() -> bytes:
    """The archive; run it with `python3 check_env.pyz`."""
    root = Path(__file__).resolve().parent
    sources = {"__main__.py": _MAIN.encode()}
    for path in root.rglob("*.py"):
        inside = path.relative_to(root).as_posix()
        if inside not in _NOT_NEEDED:
            sources[_PACKAGE + "/" + inside] = path.read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            target.writestr(entry, sources[name])
    return archive.getvalue()
