"""The prefix cache in plain Python: the oracle of the Rust one, and its fallback.

Knows nothing of radix compression: one node is one page, which is slower and easier to trust.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from rampway_server.cache.buffers import MAX_ID, read_pages, read_tokens, row_view, write_pages
from rampway_server.cache.pages import PagePool, Waiting, check_shape
from rampway_server.cache.protocol import (
    CacheStats,
    CorruptCacheError,
    Inserted,
    InvalidInputError,
    Match,
    StaleHandleError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from rampway_server.cache.protocol import PageIds, PageRow, TokenBuffer

__all__ = ["PythonPrefixCache"]


@dataclass(slots=True, eq=False)
class _Node:
    """One cached page, or the root of a namespace (page 0, key = the namespace)."""

    page: int
    key: bytes
    parent: _Node | None
    children: dict[bytes, _Node] = field(default_factory=dict)
    locks: int = 0


@dataclass(slots=True)
class _Lock:
    """What a handle protects: `path[0]` is the namespace's root, then one node a page."""

    path: list[_Node]


class PythonPrefixCache:
    """See `protocol.PrefixCache`; every method's contract is written there.

    Recency: `_lru` holds every unlocked page. A release touches its path from the leaf to the
    root, so a parent is always younger than its children and the oldest page is always a leaf.
    """

    def __init__(self, num_pages: int, page_size: int = 16) -> None:
        check_shape(num_pages, page_size)
        self.num_pages = num_pages
        self.page_size = page_size
        self._pool = PagePool(num_pages)
        self._roots: dict[bytes, _Node] = {}
        self._lru: OrderedDict[_Node, None] = OrderedDict()
        self._locks: dict[int, _Lock] = {}
        self._handles = count(1)
        self._waiting: Waiting[_Lock | list[int]] = Waiting()
        self._protected = 0
        self._lookups = self._queried = self._matched = self._inserted = self._evicted = 0

    def match_lock(self, namespace: bytes, tokens: TokenBuffer, limit: int | None = None) -> Match:
        """Lock the longest cached prefix of `tokens[:limit]`."""
        wanted = read_tokens(tokens, limit)
        root = self._roots.setdefault(namespace, _Node(0, namespace, None))
        path = [root, *self._walk(root, wanted)]
        for node in path:
            self._lock(node)
        handle = next(self._handles)
        self._locks[handle] = _Lock(path)
        matched = (len(path) - 1) * self.page_size
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
        duplicates = []
        for page, key in zip(offered, self._keys(fresh), strict=True):
            parent = lock.path[-1]
            node = parent.children.get(key)
            if node is not None:
                duplicates.append(page)
                self._lock(node)
            else:
                node = parent.children[key] = _Node(page, key, parent, locks=1)
                self._pool.adopt(page)
                self._protected += 1
            lock.path.append(node)
        adopted = len(offered) - len(duplicates)
        self._inserted += adopted
        return Inserted(total, adopted, duplicates)

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
        """Free the `n` oldest evictable pages."""
        if n < 0:
            raise InvalidInputError(f"n is negative: got {n}, need 0 or more")
        freed = min(n, len(self._lru))
        for _ in range(freed):
            self._drop_oldest()
        self._evicted += freed
        return freed

    def clear(self) -> int:
        """Drop every page that is not locked; these do not count as evicted."""
        dropped = len(self._lru)
        for _ in range(dropped):
            self._drop_oldest()
        return dropped

    def available(self) -> int:
        """Return free + evictable pages."""
        return self._pool.free + len(self._lru)

    def stats(self) -> CacheStats:
        """Return page counts and counters."""
        return CacheStats(
            total=self.num_pages,
            free=self._pool.free,
            evictable=len(self._lru),
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
        for lock in [*self._locks.values(), *waiting]:
            for node in lock.path:
                held[node] = held.get(node, 0) + 1
        for node in nodes:
            if node.locks != held.pop(node, 0):
                raise CorruptCacheError(f"locks of page {node.page} differ: got {node.locks}")
            if node.parent is not None and (node in self._lru) == (node.locks > 0):
                raise CorruptCacheError(f"page {node.page} is locked and evictable, or neither")
            if node.parent is None and not node.children and not node.locks:
                raise CorruptCacheError("an empty namespace was kept")
        if held:
            raise CorruptCacheError("a handle protects a page that is not in the tree")
        if self._protected != len(pages) - len(self._lru):
            raise CorruptCacheError(f"protected differs: got {self._protected}")

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
            del self._lru[node]
            self._protected += 1

    def _unlock(self, lock: _Lock) -> None:
        for node in reversed(lock.path):
            node.locks -= 1
            if node.locks == 0 and node.parent is not None:
                self._lru[node] = None
                self._protected -= 1
        self._forget_if_empty(lock.path[0])

    def _drop_oldest(self) -> None:
        node, _ = self._lru.popitem(last=False)
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
