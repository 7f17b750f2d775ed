"""The Rust prefix cache behind the contract: its errors, results and counts in our own types.

Knows nothing of how the cache works; every decision is made in `rampway_prefix_cache`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import rampway_prefix_cache as native

from rampway_server.cache.protocol import (
    CacheError,
    CacheStats,
    CorruptCacheError,
    Inserted,
    InvalidInputError,
    Match,
    PageOwnershipError,
    Pin,
    Quota,
    StaleHandleError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.cache.protocol import (
        Event,
        Lookup,
        PageIds,
        PageRow,
        Policy,
        TokenBuffer,
    )

__all__ = ["RustPrefixCache"]

_ERRORS: dict[type[native.CacheError], type[CacheError]] = {
    native.StaleHandleError: StaleHandleError,
    native.PageOwnershipError: PageOwnershipError,
    native.InvalidInputError: InvalidInputError,
    native.CorruptCacheError: CorruptCacheError,
}


class RustPrefixCache:
    """See `protocol.PrefixCache`; every method's contract is written there."""

    def __init__(self, num_pages: int, page_size: int = 16, policy: Policy = "lru") -> None:
        try:
            self._cache = native.PrefixCache(num_pages, page_size, policy)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None
        self.num_pages = num_pages
        self.page_size = page_size

    def match_lock(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> Match:
        """Lock the longest cached prefix of `tokens[:limit]`."""
        try:
            return Match._make(self._cache.match_lock(namespace, tokens, limit))
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def fill_pages(self, handle: int, out: PageRow) -> int:
        """Write the protected pages to `out`."""
        try:
            return self._cache.fill_pages(handle, out)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def alloc(self, n: int, out: PageRow, at: int = 0) -> bool:
        """Hand out `n` pages, or none."""
        try:
            return self._cache.alloc(n, out, at)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def insert(
        self, handle: int, tokens: TokenBuffer, pages: PageIds, limit: int | None = None
    ) -> Inserted:
        """Publish the computed full pages behind the ones the handle protects."""
        try:
            return Inserted._make(self._cache.insert(handle, tokens, pages, limit))
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def release(self, handle: int, fence: int | None = None) -> None:
        """Unlock, now or once `fence` has retired."""
        try:
            self._cache.release(handle, fence)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def free(self, pages: PageIds, fence: int | None = None) -> None:
        """Take pages back, now or once `fence` has retired."""
        try:
            self._cache.free(pages, fence)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def retire(self, step: int) -> int:
        """Carry out what waited for `step`."""
        try:
            return self._cache.retire(step)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def evict(self, n: int) -> int:
        """Free the `n` oldest evictable pages."""
        try:
            return self._cache.evict(n)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def peek(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> int:
        """Return what `match_lock` would match."""
        try:
            return self._cache.peek(namespace, tokens, limit)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def available(self) -> int:
        """Return free + evictable pages."""
        return self._cache.available()

    def stats(self) -> CacheStats:
        """Return page counts and counters."""
        s = self._cache.stats()
        return CacheStats(
            total=s.total,
            free=s.free,
            evictable=s.evictable,
            protected=s.protected,
            owned=s.owned,
            deferred=s.deferred,
            reserved=s.reserved,
            handles=s.handles,
            lookups=s.lookups,
            queried_tokens=s.queried_tokens,
            matched_tokens=s.matched_tokens,
            inserted_pages=s.inserted_pages,
            evicted_pages=s.evicted_pages,
            pins=s.pins,
            pinned_pages=s.pinned_pages,
        )

    def check(self) -> None:
        """Recompute every invariant."""
        try:
            self._cache.check()
        except native.CacheError as error:
            raise _ours(error) from None

    def clear(self) -> int:
        """Drop every page that is not locked; these do not count as evicted."""
        return self._cache.clear()

    def match_lock_many(self, requests: Sequence[Lookup]) -> list[Match]:
        """Lock the longest cached prefix of each."""
        try:
            return [Match._make(found) for found in self._cache.match_lock_many(requests)]
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def release_many(self, handles: Sequence[int], fence: int | None = None) -> None:
        """Unlock each, now or once `fence` has retired."""
        try:
            self._cache.release_many(handles, fence)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def prioritize(self, handle: int, priority: int) -> None:
        """Raise the priority of what the handle protects and later inserts."""
        try:
            self._cache.prioritize(handle, priority)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def pin(
        self, namespace: bytes, tokens: TokenBuffer, deadline: int, limit: int | None = None
    ) -> Pin | None:
        """Keep a cached prefix until `deadline`."""
        try:
            pin = self._cache.pin(namespace, tokens, deadline, limit)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None
        return None if pin is None else Pin._make(pin)

    def unpin(self, pin: int) -> bool:
        """End a pin."""
        return self._cache.unpin(pin)

    def expire_pins(self, now: int) -> int:
        """End the pins that are due."""
        try:
            return self._cache.expire_pins(now)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def set_pin_quota(self, pages: int) -> None:
        """Bound what all pins together keep."""
        try:
            self._cache.set_pin_quota(pages)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def set_quota(self, namespace: bytes, pages: int | None) -> int:
        """Bound what a namespace keeps cached."""
        try:
            return self._cache.set_quota(namespace, pages)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def quota(self, namespace: bytes) -> Quota | None:
        """Return what a namespace keeps and may keep."""
        quota = self._cache.quota(namespace)
        return None if quota is None else Quota._make(quota)

    def enable_events(self, capacity: int) -> None:
        """Record events from now on, or anew."""
        try:
            self._cache.enable_events(capacity)
        except (native.CacheError, OverflowError) as error:
            raise _ours(error) from None

    def disable_events(self) -> None:
        """Stop recording events."""
        self._cache.disable_events()

    def drain_events(self) -> tuple[list[Event], int]:
        """Take the events since the last call."""
        return self._cache.drain_events()


def _ours(error: native.CacheError | OverflowError) -> CacheError:
    """Return the contract's error for one of the extension's, or for an int it cannot hold."""
    kind = _ERRORS.get(type(error), InvalidInputError)  # type: ignore[arg-type]
    return kind(str(error))
