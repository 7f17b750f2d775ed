"""The contract between the scheduler and any prefix cache: calls, results, errors.

Knows neither which implementation runs nor what a request, a tensor or a step is.

Who owns a page: page 0 is reserved (padding), every other page is free, cached in the tree, owned
by a caller (after `alloc`), or deferred (freed behind a fence). At all times
`free + evictable + protected + owned + deferred + reserved = total`.

The life of one request, with `row` its int32 row of page ids and `held` a page count:

    handle, matched = cache.match_lock(ns, tokens, limit=len(tokens) - 1)
    held = cache.fill_pages(handle, row)             # row[:held] is cached and locked
    cache.alloc(need, row, at=held)                  # False: no room, nothing has changed
    ...
    done = cache.insert(handle, tokens, row, limit=computed)     # after any step
    if done.duplicates:                              # somebody cached the same prefix first
        cache.fill_pages(handle, row)                # use theirs
        cache.free(done.duplicates)                  # give ours back
    held = done.held                                 # row[:held] is the tree's, the rest ours
    ...
    cache.free(row[held:used]); cache.release(handle)            # finish, abort, preempt alike
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, get_args

if TYPE_CHECKING:
    from typing_extensions import Buffer

# A C-contiguous, one-dimensional buffer of u32, i32 or i64 (array.array, numpy, memoryview). Lists
# are refused: converting one costs fifty times the match. Convert once per request.
TokenBuffer: TypeAlias = "Buffer"
# Page ids to read: an integer buffer as above, or any sequence of ints.
PageIds: TypeAlias = "Buffer | Sequence[int]"
# Where page ids are written: a writable, C-contiguous, one-dimensional buffer of i32.
PageRow: TypeAlias = "Buffer"
# One lookup of a batch: namespace, tokens, limit.
Lookup: TypeAlias = "tuple[bytes, TokenBuffer, int | None]"

Policy: TypeAlias = Literal["lru", "lfu", "slru", "priority"]
"""What is evicted first: the least recently used; the least often found (64 times and more are
equal); what was never found, then the rest; the lowest priority. The oldest among equals."""
POLICIES: tuple[Policy, ...] = get_args(Policy)

# A change of what is cached, as routers read it. Stored: block names, the name before (None at
# the start of a text), tokens of all blocks, tokens in a block, namespace.
Event: TypeAlias = (
    tuple[Literal["BlockStored"], list[int], int | None, list[int], int, bytes]
    | tuple[Literal["BlockRemoved"], list[int]]
    | tuple[Literal["AllBlocksCleared"]]
)


class CacheError(Exception):
    """The caller broke the contract; the cache is unchanged and goes on working."""


class StaleHandleError(CacheError):
    """The handle was released before, or never came from this cache."""


class PageOwnershipError(CacheError):
    """A page was given that the caller does not own: free, cached, deferred, reserved, repeated."""


class InvalidInputError(CacheError):
    """A buffer, a size or a token is out of range: wrong type, too short, negative."""


class CorruptCacheError(CacheError):
    """`check` found a broken invariant: a bug in the cache itself, not in its caller."""


class Match(NamedTuple):
    """A locked prefix: `handle` must be released once; `matched_tokens` is whole pages."""

    handle: int
    matched_tokens: int


class Inserted(NamedTuple):
    """What `insert` did; the handle stays the same and now protects all `held` pages."""

    held: int
    """Pages of the row, from its start, that are the tree's and locked by the handle."""
    adopted: int
    """Pages that passed from the caller to the tree in this call."""
    duplicates: list[int]
    """The caller's pages that were already cached by someone else: still the caller's to free,
    after it has read the tree's ids with `fill_pages`."""


class Pin(NamedTuple):
    """A prefix kept until a deadline; `id` is never used twice, `tokens` is whole pages."""

    id: int
    tokens: int


class Quota(NamedTuple):
    """Pages a namespace keeps cached, evictable and protected, and how many it may."""

    pages: int
    limit: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Page counts now, and counters since the cache was made."""

    total: int
    free: int
    evictable: int
    protected: int
    owned: int
    deferred: int
    reserved: int
    handles: int
    """Handles that their callers have not released yet."""
    lookups: int
    queried_tokens: int
    """Tokens given to `match_lock`, cut at `limit`: the denominator of the hit rate."""
    matched_tokens: int
    inserted_pages: int
    evicted_pages: int
    pins: int = 0
    pinned_pages: int = 0
    """Pages that pins keep, a page under two pins counted twice; part of `protected`."""

    @property
    def available(self) -> int:
        """Pages that `alloc` could hand out now: admission counts evictable pages as free."""
        return self.free + self.evictable


class PrefixCache(Protocol):
    """Prefix tree over token pages together with the allocator of those pages.

    Not for use from several threads at once. Every error leaves the state unchanged.
    """

    @property
    def page_size(self) -> int:
        """Tokens in a page, a power of two."""

    @property
    def num_pages(self) -> int:
        """Pages in all, the reserved page 0 included."""

    def match_lock(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> Match:
        """Return the longest cached prefix of `tokens[:limit]` in whole pages, locked.

        Always returns a handle, also when nothing matched: `insert` and `release` need it. Pass
        `limit=len(tokens) - 1` so that at least one token is left to compute. A token outside
        0 ... 2**31 - 1 matches nothing.
        """

    def fill_pages(self, handle: int, out: PageRow) -> int:
        """Write the pages the handle protects into `out[:n]` and return n."""

    def alloc(self, n: int, out: PageRow, at: int = 0) -> bool:
        """Write `n` pages into `out[at:at + n]`, evicting if needed; they are now the caller's.

        False when free and evictable pages together are fewer than `n`: nothing was evicted.
        """

    def insert(
        self, handle: int, tokens: TokenBuffer, pages: PageIds, limit: int | None = None
    ) -> Inserted:
        """Publish the full pages of `tokens[:limit]`, whose KV is computed, for others to match.

        `tokens` and `pages` start at token 0, like the request's own row; the part the handle
        already protects is not read again. A last, partial page stays the caller's, and so do the
        pages for which the namespace's quota has no room: `held` says how far it came. Refuses
        tokens outside 0 ... 2**31 - 1, and pages the caller does not own.
        """

    def release(self, handle: int, fence: int | None = None) -> None:
        """Unlock what the handle protects; the pages stay cached until they are evicted.

        With `fence` the lock is kept until `retire(step)` with step >= fence (no wait if that has
        been called before); the handle is dead for the caller at once either way.
        """

    def free(self, pages: PageIds, fence: int | None = None) -> None:
        """Give back pages the caller owns; with `fence` they are reused only after `retire`."""

    def retire(self, step: int) -> int:
        """Carry out every release and free with fence <= step; return pages made free."""

    def evict(self, n: int) -> int:
        """Free up to `n` evictable pages in the policy's order; return how many."""

    def peek(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> int:
        """Return how many tokens `match_lock` would match, changing nothing, not even recency."""

    def available(self) -> int:
        """Return free + evictable pages: what `alloc` could hand out now."""

    def stats(self) -> CacheStats:
        """Return page counts and counters; O(1)."""

    def check(self) -> None:
        """Walk everything and raise CorruptCacheError at the first broken invariant; O(pages)."""

    def clear(self) -> int:
        """Drop every cached page that no handle protects; return how many were freed."""

    def match_lock_many(self, requests: Sequence[Lookup]) -> list[Match]:
        """Return `match_lock` of each, in order; on an error none is locked."""

    def release_many(self, handles: Sequence[int], fence: int | None = None) -> None:
        """Release each; all are checked before the first, and one given twice is stale."""

    def prioritize(self, handle: int, priority: int) -> None:
        """Raise the priority of what the handle protects and later inserts, to 63 at most.

        It decides under the policy `priority` and means nothing under the others.
        """

    def pin(
        self, namespace: bytes, tokens: TokenBuffer, deadline: int, limit: int | None = None
    ) -> Pin | None:
        """Keep the cached prefix of `tokens[:limit]` until `expire_pins(deadline)` or `unpin`.

        None when no page of it is cached. Not a lookup: counters and hits stay as they are.
        Refused with InvalidInputError when all pins together would keep more than the quota.
        """

    def unpin(self, pin: int) -> bool:
        """End a pin; False when it has ended already."""

    def expire_pins(self, now: int) -> int:
        """End every pin whose deadline is `now` or earlier; return how many."""

    def set_pin_quota(self, pages: int) -> None:
        """Set how many pages all pins together may keep: a quarter of all pages at first."""

    def set_quota(self, namespace: bytes, pages: int | None) -> int:
        """Let the namespace keep at most `pages` pages, or any number; return how many it lost.

        Its own pages make room for its new ones, by the policy; nobody else's do. Protected pages
        are never taken, so a lower limit may hold only later.
        """

    def quota(self, namespace: bytes) -> Quota | None:
        """Return what the namespace keeps and may keep; None without a quota."""

    def enable_events(self, capacity: int) -> None:
        """Record events, at most `capacity` until drained; or start anew.

        The first ones tell what is cached now, after an `AllBlocksCleared`.
        """

    def disable_events(self) -> None:
        """Stop recording, and forget what was not drained."""

    def drain_events(self) -> tuple[list[Event], int]:
        """Return the events since the last call, oldest first, and how many were lost.

        When some were lost, `enable_events` tells everything anew.
        """
