"""The page allocator of the Python caches: which page is whose, and what waits for a step.

Knows no tokens and no tree: a cached page is only a page that is neither free nor a caller's.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from rampway_server.cache.buffers import MAX_ID
from rampway_server.cache.protocol import (
    CorruptCacheError,
    InvalidInputError,
    PageOwnershipError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Owner", "PagePool", "Waiting", "check_shape"]


T = TypeVar("T")


class Owner(IntEnum):
    """Who a page belongs to: exactly one at any time."""

    FREE = 0
    CALLER = 1
    TREE = 2
    DEFERRED = 3
    RESERVED = 4


def check_shape(num_pages: int, page_size: int) -> None:
    """Refuse sizes no cache can have, both faults at once."""
    faults = []
    if not 2 <= num_pages <= MAX_ID:
        faults.append(f"num_pages is out of range: got {num_pages}, need 2 ... {MAX_ID}")
    if page_size < 1 or page_size & (page_size - 1) or page_size > 65536:
        faults.append(f"page_size is no page size: got {page_size}, need a power of two <= 65536")
    if faults:
        raise InvalidInputError("; ".join(faults))


class PagePool:
    """Pages 1 ... n-1 on a stack of free ones; page 0 is reserved for padding."""

    def __init__(self, num_pages: int) -> None:
        self._owner = bytearray(num_pages)
        self._owner[0] = Owner.RESERVED
        self._free = list(range(num_pages - 1, 0, -1))
        self.owned = 0
        self.deferred = 0

    @property
    def free(self) -> int:
        """Pages nobody owns."""
        return len(self._free)

    def take(self, n: int) -> list[int]:
        """Hand `n` free pages to the caller, last freed first; the pool must have them."""
        pages = [self._free.pop() for _ in range(n)]
        for page in pages:
            self._owner[page] = Owner.CALLER
        self.owned += n
        return pages

    def require_owned(self, pages: Sequence[int]) -> None:
        """Refuse pages that are not all different and all the caller's."""
        if len(set(pages)) != len(pages):
            twice = next(page for i, page in enumerate(pages) if page in pages[:i])
            raise PageOwnershipError(f"page {twice} is given twice: need each page once")
        for page in pages:
            owner = Owner(self._owner[page]) if 0 <= page < len(self._owner) else None
            if owner is not Owner.CALLER:
                state = "no page" if owner is None else owner.name.lower()
                raise PageOwnershipError(
                    f"page {page} is not the caller's: got {state}, need a page from alloc"
                )

    def adopt(self, page: int) -> None:
        """Pass a caller's page to the tree."""
        self._owner[page] = Owner.TREE
        self.owned -= 1

    def give_up(self, page: int) -> None:
        """Free a page of the tree."""
        self._owner[page] = Owner.FREE
        self._free.append(page)

    def give_back(self, pages: Iterable[int]) -> None:
        """Free the caller's pages."""
        for page in pages:
            self._owner[page] = Owner.FREE
            self._free.append(page)
            self.owned -= 1

    def defer(self, pages: Iterable[int]) -> None:
        """Take the caller's pages out of use without freeing them yet."""
        for page in pages:
            self._owner[page] = Owner.DEFERRED
            self.owned -= 1
            self.deferred += 1

    def settle(self, pages: Iterable[int]) -> None:
        """Free deferred pages."""
        for page in pages:
            self._owner[page] = Owner.FREE
            self._free.append(page)
            self.deferred -= 1

    def check(self, tree: set[int]) -> None:
        """Compare every page's owner with the counts and with the pages the tree holds."""
        by_owner: dict[int, set[int]] = {owner: set() for owner in Owner}
        for page, owner in enumerate(self._owner):
            by_owner[owner].add(page)
        expected = {
            "free": (set(self._free), by_owner[Owner.FREE]),
            "tree": (tree, by_owner[Owner.TREE]),
            "reserved": ({0}, by_owner[Owner.RESERVED]),
        }
        for name, (got, need) in expected.items():
            if got != need:
                raise CorruptCacheError(f"{name} pages differ: {sorted(got ^ need)[:8]}")
        counts = (len(self._free), self.owned, self.deferred)
        need_counts = tuple(len(by_owner[o]) for o in (Owner.FREE, Owner.CALLER, Owner.DEFERRED))
        if counts != need_counts:
            raise CorruptCacheError(
                f"free, owned, deferred counts differ: got {counts}, need {need_counts}"
            )


class Waiting(Generic[T]):
    """Things to do once a step has retired, in the order of their steps, then of their arrival."""

    def __init__(self) -> None:
        self._by_fence: dict[int, list[T]] = {}
        self._retired = -1

    def must_wait(self, fence: int | None) -> bool:
        """Whether `fence` names a step that has not retired yet."""
        if fence is not None and fence < 0:
            raise InvalidInputError(f"fence is negative: got {fence}, need a step number")
        return fence is not None and fence > self._retired

    def add(self, fence: int, item: T) -> None:
        """Keep `item` until `due(step)` with step >= fence."""
        self._by_fence.setdefault(fence, []).append(item)

    def due(self, step: int) -> list[T]:
        """Return and forget what waited for `step` or an earlier one."""
        if step < 0:
            raise InvalidInputError(f"step is negative: got {step}, need a step number")
        self._retired = max(self._retired, step)
        fences = sorted(fence for fence in self._by_fence if fence <= step)
        return [item for fence in fences for item in self._by_fence.pop(fence)]

    def items(self) -> list[T]:
        """Return everything that still waits."""
        return [item for items in self._by_fence.values() for item in items]
