"""Our caches: the Rust extension as its wheel offers it, and the Python reference.

Knows no peer.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rampway_server.bench.adapters.contract import PAGE, MissingError, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Watched", "open_python", "open_rust", "open_rust_wide"]

NAMESPACE = b"n" * 32
"""As long as the digest the server passes."""
LONGEST = 1 << 20


class _Ours:
    def __init__(self, cache: Any, dtype: type[np.signedinteger[Any]]) -> None:
        self._cache = cache
        self._match, self._fill = cache.match_lock, cache.fill_pages
        self._dtype = dtype
        self._row = np.zeros(LONGEST // PAGE, dtype=np.int32)
        self._handle = 0

    def key(self, tokens: NDArray[np.int64]) -> Any:
        return tokens.astype(self._dtype)

    def put(self, key: Any) -> None:
        self.serve(key)

    def find(self, key: Any) -> int:
        handle, found = self._match(NAMESPACE, key)
        if found:
            self._fill(handle, self._row)
        self._handle = handle
        return found  # type: ignore[no-any-return]

    def let_go(self) -> None:
        self._cache.release(self._handle)

    def looking_up(self, key: Any) -> Callable[[], Any]:
        return partial(self._match, NAMESPACE, key)

    def let_go_of(self, found: list[Any]) -> None:
        self._cache.release_many([handle for handle, _ in found])

    def lock_unlock(self, key: Any, samples: int) -> list[float]:
        """One call finds and locks, so: that and release, less finding alone."""
        cache = self._cache
        found = timed(lambda: cache.peek(NAMESPACE, key), samples)
        held = timed(lambda: cache.release(cache.match_lock(NAMESPACE, key)[0]), samples)
        return [both - one for both, one in zip(held, found, strict=True)]

    def evict(self, tokens: int) -> None:
        self._cache.evict(tokens // PAGE)

    def serve(self, key: Any) -> tuple[int, int]:
        cache, row, pages = self._cache, self._row, len(key) // PAGE
        start = time.perf_counter_ns()
        handle, found = cache.match_lock(NAMESPACE, key)
        held = cache.fill_pages(handle, row) if found else 0
        fits = cache.alloc(pages - held, row, held)
        if fits:
            cache.insert(handle, key, row)
        cache.release(handle)
        took = time.perf_counter_ns() - start
        if not fits:
            raise MissingError(f"the pool is too small for a text of {len(key)} tokens")
        return int(found), took

    def watch(self) -> None:
        self._cache = Watched(self._cache)


class Watched:
    """A cache whose pages are counted after every operation; a release must leave nothing held."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._cache, name)

        def watched(*arguments: Any) -> Any:
            answer = operation(*arguments)
            s = self._cache.stats()
            total = s.free + s.evictable + s.protected + s.owned + s.deferred + s.reserved
            if total != s.total:
                raise AssertionError(
                    f"pages do not add up after {name}: got {total}, need {s.total}"
                )
            if name == "release" and (s.owned or s.protected or s.handles):
                raise AssertionError(f"something is held after a release: got {s}, need no handle")
            return answer

        return watched


def open_rust(capacity: int) -> _Ours:
    """Return the extension with 32-bit ids."""
    return _rust(capacity, np.int32)


def open_rust_wide(capacity: int) -> _Ours:
    """Return the extension with 64-bit ids, as the peers take them."""
    return _rust(capacity, np.int64)


def _rust(capacity: int, dtype: type[np.signedinteger[Any]]) -> _Ours:
    try:
        from rampway_prefix_cache import PrefixCache
    except ImportError as error:
        raise MissingError(f"the extension cannot be imported: {error}") from error
    return _Ours(PrefixCache(capacity // PAGE + 1, PAGE), dtype)


def open_python(capacity: int) -> _Ours:
    """Return the pure Python cache."""
    from rampway_server.cache.reference import PythonPrefixCache

    return _Ours(PythonPrefixCache(capacity // PAGE + 1, PAGE), np.int32)
