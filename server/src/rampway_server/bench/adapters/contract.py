"""What a contestant must be able to do, so that all are asked the same questions.

Knows no contestant.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Contestant", "MissingError", "timed"]

PAGE = 16


class MissingError(Exception):
    """The contestant cannot run here; the text says what is missing."""


class Contestant(Protocol):
    """A cache of a fixed size with pages of 16 tokens, called through its own public API.

    A key is a text in the form the contestant takes, made before anything is timed.
    """

    def key(self, tokens: NDArray[np.int64]) -> Any:
        """Return the text in the contestant's form."""

    def put(self, key: Any) -> None:
        """Cache a whole text, evicting if needed; nothing stays locked."""

    def find(self, key: Any) -> int:
        """Look a text up and get at its cached pages, as an engine does; return tokens found."""

    def let_go(self) -> None:
        """Undo what `find` holds."""

    def looking_up(self, key: Any) -> Callable[[], Any]:
        """Return the one call that looks the text up, to be made many times."""

    def let_go_of(self, found: list[Any]) -> None:
        """Undo what these results of such a call hold."""

    def lock_unlock(self, key: Any, samples: int) -> list[float]:
        """Return nanoseconds to lock and unlock the cached text, each time."""

    def evict(self, tokens: int) -> None:
        """Free at least so many tokens."""

    def serve(self, key: Any) -> tuple[int, int]:
        """Serve one request from lookup to release; return tokens found and nanoseconds.

        Not timed: making the values that an engine's allocator would have at hand.
        """

    def watch(self) -> None:
        """From now on, raise after an operation whose sizes do not add up, if it tells its sizes."""


def timed(call: Callable[[], object], samples: int) -> list[float]:
    """Return the nanoseconds of each call, the clock's own not taken off."""
    clock = time.perf_counter_ns
    times = []
    for _ in range(samples):
        start = clock()
        call()
        times.append(float(clock() - start))
    return times
