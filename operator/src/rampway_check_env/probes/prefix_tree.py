"""Loads the prefix cache, caches a few pages in a small tree, finds them again and has the tree check itself.

It knows no requirements; it reports which implementation did the work.
"""

from __future__ import annotations

import array
import importlib
from typing import Any, Dict

__all__ = ["probe"]

_PAGE, _PAGES, _TOKENS = 16, 16, 48


def probe() -> Dict[str, Any]:
    """The file of the implementation, its version, and how many of 48 cached tokens were found again."""
    package = importlib.import_module("rampway_prefix_cache")
    native = importlib.import_module("rampway_prefix_cache._native")
    cache = package.PrefixCache(_PAGES, _PAGE)
    tokens, row = array.array("i", range(_TOKENS)), array.array("i", [0] * _PAGES)
    first, _ = cache.match_lock(b"check", tokens)
    if not cache.alloc(_TOKENS // _PAGE, row):
        raise RuntimeError("a fresh cache of %d pages cannot give %d" % (_PAGES, _TOKENS // _PAGE))
    cache.insert(first, tokens, row)
    cache.release(first)
    again, matched = cache.match_lock(b"check", tokens)
    cache.release(again)
    cache.check()
    file = str(getattr(native, "__file__", ""))
    return {
        "matched": int(matched),
        "expected": _TOKENS,
        "file": file,
        "native": file.endswith((".so", ".pyd")),
        "version": str(getattr(package, "__version__", "")),
    }
