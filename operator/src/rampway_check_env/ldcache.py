"""Reads /etc/ld.so.cache, the index of libraries that ldconfig makes.

It does not know in which order the loader asks it. Entries for special processors (glibc-hwcaps) are left
out: their plain twins offer the same symbol versions.
"""

from __future__ import annotations

import struct
from typing import Dict, List

__all__ = ["parse_ld_cache"]

_OLD_MAGIC = b"ld.so-1.7.0\0"
_NEW_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("=20sIIBBBBIIII")
_ENTRY = struct.Struct("=iIIIQ")
_MAX_ENTRIES = 1 << 17


def parse_ld_cache(data: bytes) -> Dict[str, List[str]]:
    """Paths by soname, in the order of the cache; empty where the format is not known or is damaged."""
    start = _new_format_at(data)
    if start < 0 or start + _HEADER.size > len(data):
        return {}
    count = _HEADER.unpack_from(data, start)[1]
    found: Dict[str, List[str]] = {}
    for index in range(min(count, _MAX_ENTRIES)):
        at = start + _HEADER.size + index * _ENTRY.size
        if at + _ENTRY.size > len(data):
            return {}
        _, key, value, _, hwcap = _ENTRY.unpack_from(data, at)
        if hwcap:
            continue
        name, path = _text(data, start + key), _text(data, start + value)
        if name and path:
            found.setdefault(name, []).append(path)
    return found


def _new_format_at(data: bytes) -> int:
    """Offset of the new format, which may follow the old one; -1 where there is none."""
    if data.startswith(_NEW_MAGIC):
        return 0
    return data.find(_NEW_MAGIC) if data.startswith(_OLD_MAGIC) else -1


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at, at + 4096)
    return data[at:end].decode("utf-8", "replace") if end > at else ""
