"""Events of the Python cache in the words of the Rust one: the same block names for the same text.

Knows no tree: it is told which pages came and went.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.cache.protocol import Event

__all__ = ["EventLog"]


class EventLog:
    """A bounded queue of events and, by page, the hash that names what is cached in it."""

    def __init__(self, capacity: int, page_size: int) -> None:
        self._capacity = capacity
        self._page_size = page_size
        self._queue: list[Event] = []
        self._lost = 0
        self._hashes: dict[int, bytes] = {}
        self.cleared()

    def stored(
        self, namespace: bytes, parent: int | None, pages: Sequence[int], keys: Sequence[bytes]
    ) -> None:
        """Tell that pages with these tokens (int64 bytes) were published behind `parent`."""
        chain = _seed(namespace) if parent is None else self._hashes[parent]
        before = None if parent is None else _name(chain)
        blocks, tokens = [], []
        for page, key in zip(pages, keys, strict=True):
            ids = np.frombuffer(key, dtype=np.int64)
            chain = hashlib.sha256(chain + ids.astype("<u4").tobytes()).digest()
            self._hashes[page] = chain
            blocks.append(_name(chain))
            tokens += ids.tolist()
        self.push(("BlockStored", blocks, before, tokens, self._page_size, namespace))

    def removed(self, page: int) -> None:
        """Tell that a page was evicted; pages that go one after the other share an event."""
        name = _name(self._hashes.pop(page))
        last = self._queue[-1] if self._queue else None
        if last is not None and last[0] == "BlockRemoved":
            last[1].append(name)
        else:
            self.push(("BlockRemoved", [name]))

    def cleared(self) -> None:
        """Tell that nothing told before is cached any more."""
        self._hashes.clear()
        self.push(("AllBlocksCleared",))

    def push(self, event: Event) -> None:
        """Add an event, or count it as lost when there is no room."""
        if len(self._queue) < self._capacity:
            self._queue.append(event)
        else:
            self._lost += 1

    def drain(self) -> tuple[list[Event], int]:
        """Return and forget what is queued, and how many were lost."""
        drained = self._queue, self._lost
        self._queue, self._lost = [], 0
        return drained


def _seed(namespace: bytes) -> bytes:
    """Return the hash before a namespace's first block: two tenants never share a name."""
    length = len(namespace).to_bytes(8, "little")
    return hashlib.sha256(b"rampway-namespace" + length + namespace).digest()


def _name(chain: bytes) -> int:
    return int.from_bytes(chain[:8], "big")
