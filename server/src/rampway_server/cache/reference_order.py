"""In which order the Python cache's pages are evicted, and what a namespace may keep.

Knows no tokens and no tree: a node is something with hits, a priority and a namespace.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rampway_server.cache.protocol import CorruptCacheError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rampway_server.cache.protocol import Policy

__all__ = ["TOP", "EvictionOrder", "Limited"]

TOP = 63
"""The highest hit count and priority that are told apart."""


class Ranked(Protocol):
    """What decides a node's class. Both change only while it is locked, so not in any order."""

    hits: int
    priority: int


NodeT = TypeVar("NodeT", bound=Ranked)


@dataclass(slots=True)
class EvictionOrder(Generic[NodeT]):
    """Unlocked nodes by class, oldest first: the next victim is the first of the lowest class.

    A release adds its path from the leaf to the root, and hits and priorities are raised along
    whole paths, so a parent always comes after its children and the victim is always a leaf.
    """

    policy: Policy
    _classes: dict[int, OrderedDict[NodeT, None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(nodes) for nodes in self._classes.values())

    def __contains__(self, node: NodeT) -> bool:
        return node in self._classes.get(self._class(node), ())

    def __iter__(self) -> Iterator[NodeT]:
        """Yield the nodes in the order they would go."""
        for rank in sorted(self._classes):
            yield from self._classes[rank]

    def add(self, node: NodeT) -> None:
        """Add a node as the youngest of its class."""
        self._classes.setdefault(self._class(node), OrderedDict())[node] = None

    def remove(self, node: NodeT) -> None:
        """Take out a node that is there."""
        rank = self._class(node)
        nodes = self._classes[rank]
        del nodes[node]
        if not nodes:
            del self._classes[rank]

    def first(self) -> NodeT:
        """Return the next victim; there must be one."""
        return next(iter(self._classes[min(self._classes)]))

    def _class(self, node: Ranked) -> int:
        if self.policy == "lru":
            return 0
        if self.policy == "priority":
            return node.priority
        return node.hits if self.policy == "lfu" else min(node.hits, 1)


@dataclass(slots=True)
class Limited(Generic[NodeT]):
    """A namespace with a quota: its pages counted, and in the order they go."""

    limit: int
    order: EvictionOrder[NodeT]
    pages: int = 0

    def over(self, more: int) -> int:
        """Return by how many pages it would be over its limit with `more` of them."""
        return max(0, self.pages + more - self.limit)

    def check(self, pages: int, order: list[NodeT]) -> None:
        """Compare with what the whole cache says of this namespace."""
        if (self.pages, list(self.order)) != (pages, order):
            raise CorruptCacheError(f"quota miscounts: got {self.pages} pages, need {pages}")
