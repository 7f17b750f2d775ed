"""The prefix cache in plain Python: the oracle of the Rust one, and its fallback.

Knows nothing of radix compression: one node is one page, which is slower and easier to trust.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rampway_server.cache.buffers import (
    MAX_ID,
    read_handles,
    read_pages,
    read_tokens,
    row_view,
    write_pages,
)
from rampway_server.cache.pages import PagePool, Waiting, check_shape
from rampway_server.cache.protocol import (
    CacheStats,
    CorruptCacheError,
    Inserted,
    InvalidInputError,
    Match,
    Pin,
    Quota,
    StaleHandleError,
)
from rampway_server.cache.reference_events import EventLog
from rampway_server.cache.reference_order import TOP, EvictionOrder, Limited

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from rampway_server.cache.protocol import (
        Event,
        Lookup,
        PageIds,
        PageRow,
        Policy,
        TokenBuffer,
    )

__all__ = ["PythonPrefixCache"]


@dataclass(slots=True, eq=False)
class _Node:
    """One cached page, or the root of a namespace (page 0, key = the namespace)."""

    page: int
    key: bytes
    parent: _Node | None
    namespace: bytes
    children: dict[bytes, _Node] = field(default_factory=dict)
    locks: int = 0
    hits: int = 0
    """How often `match_lock` found it, up to TOP."""
    priority: int = 0


@dataclass(slots=True)
class _Lock:
    """What a handle or a pin protects: `path[0]` is the namespace's root, then one node a page."""

    path: list[_Node]
    priority: int = 0

    @property
    def pages(self) -> int:
        """Pages protected."""
        return len(self.path) - 1


class PythonPrefixCache:
    """See `protocol.PrefixCache`; every method's contract is written there.

    `_order` holds every unlocked page, and says which goes next.
    """

    def __init__(self, num_pages: int, page_size: int = 16, policy: Policy = "lru") -> None:
        check_shape(num_pages, page_size)
        self.num_pages = num_pages
        self.page_size = page_size
        self.policy = policy
        self._pool = PagePool(num_pages)
        self._roots: dict[bytes, _Node] = {}
        self._order: EvictionOrder[_Node] = EvictionOrder(policy)
        self._locks: dict[int, _Lock] = {}
        self._handles = count(1)
        self._waiting: Waiting[_Lock | list[int]] = Waiting()
        self._pins: dict[int, tuple[_Lock, int]] = {}
        self._pin_ids = count(1)
        self._pin_quota = num_pages // 4
        self._quotas: dict[bytes, Limited[_Node]] = {}
        self._events: EventLog | None = None
        self._protected = 0
        self._lookups = self._queried = self._matched = self._inserted = self._evicted = 0

    def match_lock(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> Match:
        """Lock the longest cached prefix of `tokens[:limit]`."""
        wanted = read_tokens(tokens, limit)
        lock = self._lock_prefix(namespace, wanted)
        for node in lock.path:
            node.hits = min(node.hits + 1, TOP)
        handle = next(self._handles)
        self._locks[handle] = lock
        matched = lock.pages * self.page_size
        self._lookups += 1
        self._queried += len(wanted)
        self._matched += matched
        return Match(handle, matched)

    def peek(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> int:
        """Return what `match_lock` would match."""
        wanted = read_tokens(tokens, limit)
        root = self._roots.get(namespace)
        return 0 if root is None else sum(self.page_size for _ in self._walk(root, wanted))

    def fill_pages(self, handle: int, out: PageRow) -> int:
        """Write the protected pages to `out`."""
        pages = [node.page for node in self._live(handle).path[1:]]
        write_pages(out, 0, pages)
        return len(pages)

    def alloc(self, n: int, out: PageRow, at: int = 0) -> bool:
        """Hand out `n` pages, or none."""
        if n < 0:
            raise InvalidInputError(f"n is negative: got {n}, need 0 or more")
        row = row_view(out, at, n)
        if n > self.available():
            return False
        self.evict(max(0, n - self._pool.free))
        row[:] = self._pool.take(n)
        return True

    def insert(
        self, handle: int, tokens: TokenBuffer, pages: PageIds, limit: int | None = None
    ) -> Inserted:
        """Publish the computed full pages behind the ones the handle protects."""
        lock = self._live(handle)
        have = len(lock.path) - 1
        wanted = read_tokens(tokens, limit)
        total = len(wanted) // self.page_size
        if total <= have:
            return Inserted(have, 0, [])
        fresh = wanted[have * self.page_size : total * self.page_size]
        if fresh.min() < 0 or fresh.max() > MAX_ID:
            raise InvalidInputError(f"tokens are out of range: need 0 ... {MAX_ID}")
        offered = read_pages(pages, have, total)
        self._pool.require_owned(offered)
        keys = list(self._keys(fresh))
        known = list(self._walk(lock.path[-1], fresh))
        for node in known:
            self._lock(node)
        lock.path += known
        new = self._room_for(lock.path[0].namespace, len(offered) - len(known))
        held = len(known) + new
        self._publish(lock, offered[len(known) : held], keys[len(known) : held])
        self._raise(lock)
        return Inserted(have + held, new, offered[: len(known)])

    def release(self, handle: int, fence: int | None = None) -> None:
        """Unlock, now or once `fence` has retired."""
        lock = self._live(handle)
        if self._waiting.must_wait(fence):
            assert fence is not None
            self._waiting.add(fence, lock)
        else:
            self._unlock(lock)
        del self._locks[handle]

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
        """Carry out what waited for `step`."""
        freed = 0
        for item in self._waiting.due(step):
            if isinstance(item, _Lock):
                self._unlock(item)
            else:
                self._pool.settle(item)
                freed += len(item)
        return freed

    def evict(self, n: int) -> int:
        """Free the policy's first `n` evictable pages."""
        if n < 0:
            raise InvalidInputError(f"n is negative: got {n}, need 0 or more")
        return self._evict_from(self._order, n)

    def clear(self) -> int:
        """Drop every page that is not locked; these do not count as evicted."""
        log = self._events
        if not self._protected:
            self._events = None
        dropped = len(self._order)
        for _ in range(dropped):
            self._drop(self._order.first())
        if log is not None and self._events is None:
            log.cleared()
        self._events = log
        return dropped

    def match_lock_many(self, requests: Sequence[Lookup]) -> list[Match]:
        """Lock the longest cached prefix of each; none when one is refused."""
        for _, tokens, limit in requests:
            read_tokens(tokens, limit)
        return [self.match_lock(*request) for request in requests]

    def release_many(self, handles: Sequence[int], fence: int | None = None) -> None:
        """Release each; none when one is stale or given twice."""
        read_handles(handles, self._live)
        for handle in handles:
            self.release(handle, fence)

    def prioritize(self, handle: int, priority: int) -> None:
        """Raise the priority of what the handle protects and later inserts."""
        if priority < 0:
            raise InvalidInputError(f"priority is negative: got {priority}, need 0 or more")
        lock = self._live(handle)
        lock.priority = max(lock.priority, min(priority, TOP))
        self._raise(lock)

    def pin(
        self, namespace: bytes, tokens: TokenBuffer, deadline: int, limit: int | None = None
    ) -> Pin | None:
        """Keep a cached prefix until `deadline`."""
        wanted = read_tokens(tokens, limit)
        if deadline < 0:
            raise InvalidInputError(f"deadline is negative: got {deadline}, need 0 or more")
        need = self.peek(namespace, tokens, limit) // self.page_size
        if not need:
            return None
        left = max(0, self._pin_quota - self._pinned_pages())
        if need > left:
            raise InvalidInputError(
                f"pin is over the quota: got {need} pages to keep, need {left} or fewer"
            )
        pin = next(self._pin_ids)
        self._pins[pin] = (self._lock_prefix(namespace, wanted), deadline)
        return Pin(pin, need * self.page_size)

    def unpin(self, pin: int) -> bool:
        """End a pin."""
        lock, _ = self._pins.pop(pin, (None, 0))
        if lock is not None:
            self._unlock(lock)
        return lock is not None

    def expire_pins(self, now: int) -> int:
        """End the pins that are due, in the order of their deadlines."""
        if now < 0:
            raise InvalidInputError(f"now is negative: got {now}, need 0 or more")
        due = sorted((deadline, pin) for pin, (_, deadline) in self._pins.items())
        return sum(self.unpin(pin) for deadline, pin in due if deadline <= now)

    def set_pin_quota(self, pages: int) -> None:
        """Bound what all pins together keep."""
        if pages < 0:
            raise InvalidInputError(f"pages is negative: got {pages}, need 0 or more")
        self._pin_quota = pages

    def set_quota(self, namespace: bytes, pages: int | None) -> int:
        """Bound what a namespace keeps cached."""
        if pages is None:
            self._quotas.pop(namespace, None)
            return 0
        if pages < 0:
            raise InvalidInputError(f"pages is negative: got {pages}, need 0 or more")
        limited = self._quotas.get(namespace)
        if limited is None:
            limited = self._quotas[namespace] = Limited(pages, EvictionOrder(self.policy))
            limited.pages = sum(1 for _ in self._pages_of(namespace))
            for node in self._order:
                if node.namespace == namespace:
                    limited.order.add(node)
        limited.limit = pages
        return self._evict_from(limited.order, limited.over(0))

    def quota(self, namespace: bytes) -> Quota | None:
        """Return what a namespace keeps and may keep."""
        limited = self._quotas.get(namespace)
        return None if limited is None else Quota(limited.pages, limited.limit)

    def enable_events(self, capacity: int) -> None:
        """Record events from now on, or anew; first what is cached, parents before children."""
        if capacity < 0:
            raise InvalidInputError(f"capacity is negative: got {capacity}, need 0 or more")
        self._events = EventLog(capacity, self.page_size)
        for node in self._all_nodes():
            if node.parent is not None:
                parent = node.parent.page or None
                self._events.stored(node.namespace, parent, [node.page], [node.key])

    def disable_events(self) -> None:
        """Stop recording events."""
        self._events = None

    def drain_events(self) -> tuple[list[Event], int]:
        """Take the events since the last call."""
        return ([], 0) if self._events is None else self._events.drain()

    def available(self) -> int:
        """Return free + evictable pages."""
        return self._pool.free + len(self._order)

    def stats(self) -> CacheStats:
        """Return page counts and counters."""
        return CacheStats(
            total=self.num_pages,
            free=self._pool.free,
            evictable=len(self._order),
            protected=self._protected,
            owned=self._pool.owned,
            deferred=self._pool.deferred,
            reserved=1,
            handles=len(self._locks),
            lookups=self._lookups,
            queried_tokens=self._queried,
            matched_tokens=self._matched,
            inserted_pages=self._inserted,
            evicted_pages=self._evicted,
            pins=len(self._pins),
            pinned_pages=self._pinned_pages(),
        )

    def check(self) -> None:
        """Walk the tree, the locks and the allocator."""
        nodes = list(self._all_nodes())
        pages = [node.page for node in nodes if node.parent is not None]
        if len(set(pages)) != len(pages):
            raise CorruptCacheError("a page is in the tree twice")
        self._pool.check(set(pages))
        held: dict[_Node, int] = {}
        waiting = [item for item in self._waiting.items() if isinstance(item, _Lock)]
        pinned = [lock for lock, _ in self._pins.values()]
        for lock in [*self._locks.values(), *waiting, *pinned]:
            for node in lock.path:
                held[node] = held.get(node, 0) + 1
        for node in nodes:
            if node.locks != held.pop(node, 0):
                raise CorruptCacheError(f"locks of page {node.page} differ: got {node.locks}")
            if node.parent is not None and (node in self._order) == (node.locks > 0):
                raise CorruptCacheError(f"page {node.page} is locked and evictable, or neither")
            if node.parent is None and not node.children and not node.locks:
                raise CorruptCacheError("an empty namespace was kept")
        if held:
            raise CorruptCacheError("a handle protects a page that is not in the tree")
        if self._protected != len(pages) - len(self._order):
            raise CorruptCacheError(f"protected differs: got {self._protected}")
        for name, limited in self._quotas.items():
            order = [node for node in self._order if node.namespace == name]
            limited.check(sum(1 for _ in self._pages_of(name)), order)

    def _walk(self, node: _Node, tokens: NDArray[np.int64]) -> Iterator[_Node]:
        """Yield the cached nodes along `tokens`, from below `node` on."""
        for key in self._keys(tokens):
            child = node.children.get(key)
            if child is None:
                return
            yield child
            node = child

    def _keys(self, tokens: NDArray[np.int64]) -> Iterator[bytes]:
        """Yield one key a full page: its tokens' bytes, compared exactly, never only hashed."""
        size = self.page_size
        raw = tokens.tobytes()
        for start in range(0, len(tokens) // size * size, size):
            yield raw[start * 8 : (start + size) * 8]

    def _lock_prefix(self, namespace: bytes, wanted: NDArray[np.int64]) -> _Lock:
        root = self._roots.setdefault(namespace, _Node(0, namespace, None, namespace))
        path = [root, *self._walk(root, wanted)]
        for node in path:
            self._lock(node)
        return _Lock(path)

    def _publish(self, lock: _Lock, pages: list[int], keys: list[bytes]) -> None:
        """Put the caller's pages behind the locked path, and lock them too."""
        above = lock.path[-1]
        for page, key in zip(pages, keys, strict=True):
            parent = lock.path[-1]
            node = _Node(page, key, parent, above.namespace, locks=1, priority=lock.priority)
            parent.children[key] = node
            self._pool.adopt(page)
            lock.path.append(node)
        self._protected += len(pages)
        self._inserted += len(pages)
        if above.namespace in self._quotas:
            self._quotas[above.namespace].pages += len(pages)
        if pages and self._events is not None:
            self._events.stored(above.namespace, above.page or None, pages, keys)

    def _room_for(self, namespace: bytes, wanted: int) -> int:
        """Make room among the namespace's own pages; return how many of `wanted` it may add."""
        limited = self._quotas.get(namespace)
        if limited is None:
            return wanted
        self._evict_from(limited.order, limited.over(wanted))
        return max(0, wanted - limited.over(wanted))

    def _raise(self, lock: _Lock) -> None:
        for node in lock.path:
            node.priority = max(node.priority, lock.priority)

    def _evict_from(self, order: EvictionOrder[_Node], n: int) -> int:
        freed = min(n, len(order))
        for _ in range(freed):
            self._drop(order.first())
        self._evicted += freed
        return freed

    def _pinned_pages(self) -> int:
        return sum(lock.pages for lock, _ in self._pins.values())

    def _pages_of(self, namespace: bytes) -> Iterator[_Node]:
        pages = (node for node in self._all_nodes() if node.parent is not None)
        return (node for node in pages if node.namespace == namespace)

    def _live(self, handle: int) -> _Lock:
        lock = self._locks.get(handle)
        if lock is None:
            raise StaleHandleError(
                f"handle is not live: got {handle}, need one from match_lock, released only once"
            )
        return lock

    def _lock(self, node: _Node) -> None:
        node.locks += 1
        if node.locks == 1 and node.parent is not None:
            self._order.remove(node)
            self._protected += 1
            if node.namespace in self._quotas:
                self._quotas[node.namespace].order.remove(node)

    def _unlock(self, lock: _Lock) -> None:
        for node in reversed(lock.path):
            node.locks -= 1
            if node.locks == 0 and node.parent is not None:
                self._order.add(node)
                self._protected -= 1
                if node.namespace in self._quotas:
                    self._quotas[node.namespace].order.add(node)
        self._forget_if_empty(lock.path[0])

    def _drop(self, node: _Node) -> None:
        self._order.remove(node)
        limited = self._quotas.get(node.namespace)
        if limited is not None:
            limited.order.remove(node)
            limited.pages -= 1
        if self._events is not None:
            self._events.removed(node.page)
        assert node.parent is not None
        assert not node.children
        del node.parent.children[node.key]
        self._pool.give_up(node.page)
        self._forget_if_empty(node.parent)

    def _forget_if_empty(self, root: _Node) -> None:
        """Drop a namespace nobody uses, so that ever new tenants cost no memory."""
        if root.parent is None and not root.children and not root.locks:
            self._roots.pop(root.key, None)

    def _all_nodes(self) -> Iterator[_Node]:
        pending = list(self._roots.values())
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())
