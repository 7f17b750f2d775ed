"""No prefix cache: the page allocator alone, behind the same contract.

Knows no tokens: every lookup counts, matches nothing, and every page stays its caller's.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from rampway_server.cache.buffers import read_handles, read_pages, read_tokens, row_view
from rampway_server.cache.pages import PagePool, Waiting, check_shape
from rampway_server.cache.protocol import (
    CacheStats,
    Event,
    Inserted,
    InvalidInputError,
    Match,
    Pin,
    Quota,
    StaleHandleError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.cache.protocol import Lookup, PageIds, PageRow, TokenBuffer

__all__ = ["NoPrefixCache"]


class NoPrefixCache:
    """See `protocol.PrefixCache`; hit rate is 0 because lookups are counted and never match."""

    def __init__(self, num_pages: int, page_size: int = 16) -> None:
        check_shape(num_pages, page_size)
        self.num_pages = num_pages
        self.page_size = page_size
        self._pool = PagePool(num_pages)
        self._waiting: Waiting[list[int]] = Waiting()
        self._handles = count(1)
        self._live: set[int] = set()
        self._lookups = 0
        self._queried = 0

    def match_lock(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> Match:
        """Return a handle that protects nothing."""
        del namespace
        self._queried += len(read_tokens(tokens, limit))
        self._lookups += 1
        handle = next(self._handles)
        self._live.add(handle)
        return Match(handle, 0)

    def fill_pages(self, handle: int, out: PageRow) -> int:
        """Write nothing."""
        del out
        self._require_live(handle)
        return 0

    def alloc(self, n: int, out: PageRow, at: int = 0) -> bool:
        """Hand out `n` free pages, or none."""
        if n < 0:
            raise InvalidInputError(f"n is negative: got {n}, need 0 or more")
        row = row_view(out, at, n)
        if n > self._pool.free:
            return False
        row[:] = self._pool.take(n)
        return True

    def insert(
        self, handle: int, tokens: TokenBuffer, pages: PageIds, limit: int | None = None
    ) -> Inserted:
        """Keep nothing: all pages stay the caller's."""
        del tokens, pages, limit
        self._require_live(handle)
        return Inserted(0, 0, [])

    def release(self, handle: int, fence: int | None = None) -> None:
        """End the handle; it protected nothing, so there is nothing to wait for."""
        del fence
        self._require_live(handle)
        self._live.remove(handle)

    def free(self, pages: PageIds, fence: int | None = None) -> None:
        """Take pages back, now or once `fence` has retired."""
        given = read_pages(pages)
        self._pool.require_owned(given)
        if self._waiting.must_wait(fence):
            assert fence is not None
            self._pool.defer(given)
            self._waiting.add(fence, given)
        else:
            self._pool.give_back(given)

    def retire(self, step: int) -> int:
        """Free what waited for `step`."""
        due = self._waiting.due(step)
        for pages in due:
            self._pool.settle(pages)
        return sum(len(pages) for pages in due)

    def evict(self, n: int) -> int:
        """Nothing is cached, so nothing is evicted."""
        del n
        return 0

    def peek(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> int:
        """Nothing matches."""
        del namespace, tokens, limit
        return 0

    def available(self) -> int:
        """Return the free pages."""
        return self._pool.free

    def stats(self) -> CacheStats:
        """Return page counts and counters."""
        return CacheStats(
            total=self.num_pages,
            free=self._pool.free,
            evictable=0,
            protected=0,
            owned=self._pool.owned,
            deferred=self._pool.deferred,
            reserved=1,
            handles=len(self._live),
            lookups=self._lookups,
            queried_tokens=self._queried,
            matched_tokens=0,
            inserted_pages=0,
            evicted_pages=0,
        )

    def check(self) -> None:
        """Check the allocator."""
        self._pool.check(set())

    def clear(self) -> int:
        """Nothing is cached, so nothing is dropped."""
        return 0

    def match_lock_many(self, requests: Sequence[Lookup]) -> list[Match]:
        """Return handles that protect nothing."""
        for _, tokens, limit in requests:
            read_tokens(tokens, limit)
        return [self.match_lock(*request) for request in requests]

    def release_many(self, handles: Sequence[int], fence: int | None = None) -> None:
        """End the handles."""
        read_handles(handles, self._require_live)
        for handle in handles:
            self.release(handle, fence)

    def prioritize(self, handle: int, priority: int) -> None:
        """Nothing is protected, so nothing is raised."""
        del priority
        self._require_live(handle)

    def pin(
        self, namespace: bytes, tokens: TokenBuffer, deadline: int, limit: int | None = None
    ) -> Pin | None:
        """Nothing is cached, so nothing is kept."""
        del namespace, tokens, deadline, limit
        return None

    def unpin(self, pin: int) -> bool:
        """There is no pin."""
        del pin
        return False

    def expire_pins(self, now: int) -> int:
        """There is no pin."""
        del now
        return 0

    def set_pin_quota(self, pages: int) -> None:
        """There is no pin."""

    def set_quota(self, namespace: bytes, pages: int | None) -> int:
        """Nothing is kept, so no limit matters."""
        del namespace, pages
        return 0

    def quota(self, namespace: bytes) -> Quota | None:
        """There is no quota."""
        del namespace
        return None

    def enable_events(self, capacity: int) -> None:
        """Nothing will happen that could be told."""

    def disable_events(self) -> None:
        """Nothing was told."""

    def drain_events(self) -> tuple[list[Event], int]:
        """Nothing happened."""
        return [], 0

    def _require_live(self, handle: int) -> None:
        if handle not in self._live:
            raise StaleHandleError(
                f"handle is not live: got {handle}, need one from match_lock, released only once"
            )
