"""The work queue: which InferenceDeployment is looked at next, and never by two workers at once.

It does not know what a key means nor what looking at it does.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from rampway_operator.errors import ApiError

__all__ = ["Key", "WorkQueue"]

FIRST_RETRY_SECONDS = 1.0
LAST_RETRY_SECONDS = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Names one InferenceDeployment."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


Work = Callable[[Key], Awaitable[float | None]]
"""Looks at a key. Returns seconds until the next look, or None to forget the key; raises to back off."""


@dataclass(slots=True)
class _Running:
    since: float
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class WorkQueue:
    """A keyed queue: a key waits at most once, with its earliest due time, and runs at most once at a time.

    All times are seconds of the running loop's clock. `add` must be called in that loop.
    """

    work: Work
    workers: int = 8
    jitter: Callable[[], float] = random.random
    """Numbers in [0, 1): spreads the retries."""
    _due: dict[Key, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, Key]] = field(default_factory=list)
    _failures: dict[Key, int] = field(default_factory=dict)
    _running: dict[Key, _Running] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _closing: bool = False

    def add(self, key: Key) -> None:
        """Have `key` looked at as soon as a worker is free; a key already waiting for now is not added twice."""
        self.add_after(key, 0.0)

    def add_after(self, key: Key, seconds: float) -> None:
        """Have `key` looked at in `seconds`, or earlier if it is already due earlier."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        self._wake.set()

    async def run(self) -> None:
        """Works until `close` is called."""
        while not self._closing:
            self._wake.clear()
            wait = self._start_what_is_due()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Starts nothing more and returns when the looks in progress have ended."""
        self._closing = True
        self._wake.set()
        tasks = [entry.task for entry in self._running.values() if entry.task]
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def depth(self) -> int:
        """How many keys are due and wait for a worker."""
        now = asyncio.get_running_loop().time()
        return sum(due <= now for due in self._due.values())

    @property
    def oldest_age(self) -> float:
        """For how many seconds the longest waiting due key has been waiting; 0 when none waits."""
        now = asyncio.get_running_loop().time()
        return max(0.0, now - min(self._due.values(), default=now))

    @property
    def longest_run(self) -> float:
        """For how many seconds the slowest look in progress has been running; 0 when none is."""
        now = asyncio.get_running_loop().time()
        return max((now - entry.since for entry in self._running.values()), default=0.0)

    def _start_what_is_due(self) -> float | None:
        """Start due keys on free workers; returns seconds until the next one is due (None: on wake-up only)."""
        now = asyncio.get_running_loop().time()
        held_back: list[tuple[float, int, Key]] = []
        wait = None
        while self._heap and len(self._running) < self.workers:
            due, order, key = self._heap[0]
            if self._due.get(key) != due:  # replaced by an earlier due time
                heapq.heappop(self._heap)
            elif due > now:
                wait = due - now
                break
            elif key in self._running:  # looked at again when the look in progress ends
                held_back.append((due, order, key))
                heapq.heappop(self._heap)
            else:
                heapq.heappop(self._heap)
                del self._due[key]
                self._start(key, now)
        for entry in held_back:
            heapq.heappush(self._heap, entry)
        return wait

    def _start(self, key: Key, now: float) -> None:
        entry = self._running[key] = _Running(since=now)
        entry.task = asyncio.create_task(self._look(key), name=f"reconcile {key}")

    async def _look(self, key: Key) -> None:
        try:
            again = await self.work(key)
        except Exception as error:
            again = self._backoff(key)
            log.warning(
                "look failed",
                key=str(key),
                error=str(error),
                retry_in_s=round(again, 1),
                exc_info=not isinstance(error, ApiError),
            )
        else:
            self._failures.pop(key, None)
        finally:
            del self._running[key]
            self._wake.set()
        if again is not None:
            self.add_after(key, again)

    def _backoff(self, key: Key) -> float:
        """Doubling from 1 s to 60 s, each between half and the whole of it."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        full = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** min(failures, 10))
        return float(max(FIRST_RETRY_SECONDS, full * (0.5 + self.jitter() / 2)))
