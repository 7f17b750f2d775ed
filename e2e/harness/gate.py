"""The traffic gate: a client that records for every request which revision served it, and what that says.

It does not know rollouts; a test lays its records beside the weights that it saw.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable

from loadgen.client import Client
from loadgen.report import Outcome
from loadgen.workload import Workload, chats

__all__ = ["ALPHA_Z", "TrafficGate", "moves_back", "share"]

ALPHA_Z = 3.89
"""Standard errors of a two-sided interval at 1e-4."""


class TrafficGate:
    """Plays a workload against `url` in a thread of its own until it is stopped."""

    def __init__(self, url: str, model: str, load: Workload) -> None:
        self.outcomes: list[Outcome] = []
        self._url, self._model, self._load = url, model, load
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> list[Outcome]:
        """Send nothing new, wait for what is in flight and return every outcome."""
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "requests are in flight after 120 s"
        return self.outcomes

    async def _run(self) -> None:
        client = Client(self._url, self._model, self._load, self.outcomes.append, lambda: None)
        stopping, began = asyncio.Event(), time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                for chat in chats(self._load):
                    wait = max(0.0, began + chat.starts_at - time.monotonic())
                    if await asyncio.to_thread(self._stopping.wait, wait):
                        stopping.set()
                        break
                    tasks.create_task(client.play(chat, stopping))
        finally:
            await client.close()


def share(outcomes: Iterable[Outcome], revision: str) -> tuple[float, float]:
    """The revision's share of the requests, and its standard error with sessions as the units."""
    sessions: dict[str, list[bool]] = defaultdict(list)
    for outcome in outcomes:
        sessions[outcome.session].append(outcome.revision == revision)
    total = sum(map(len, sessions.values()))
    mean = sum(map(sum, sessions.values())) / total
    squares = sum((sum(found) - mean * len(found)) ** 2 for found in sessions.values())
    return mean, math.sqrt(squares) / total


def moves_back(outcomes: Iterable[Outcome], new: str) -> list[str]:
    """The sessions that another revision served after `new` had served them."""
    reached, back = set[str](), []
    for outcome in sorted(outcomes, key=lambda o: o.at - o.total):
        if outcome.revision == new:
            reached.add(outcome.session)
        elif outcome.session in reached:
            back.append(outcome.session)
    return back
