"""Runs batches on a thread of their own, so that the next step is planned while one is computed.

It knows no scheduler: batches go in, results come out in the same order.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rampway_server.engine.batch import hand_on

if TYPE_CHECKING:
    from rampway_server.engine.batch import Batch, Runner, StepResult
    from rampway_server.engine.scheduler import Plan

__all__ = ["DeviceThread", "Flight"]


@dataclass(frozen=True, slots=True)
class Flight:
    """A step whose result is not known yet."""

    plan: Plan
    result: Future[StepResult]


class DeviceThread:
    """Owns the runner from the first `launch` on; tokens go from step to step without the engine."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._batches: queue.SimpleQueue[tuple[Batch, Future[StepResult]] | None] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def launch(self, batch: Batch) -> Future[StepResult]:
        """Compute the batch behind those launched before; a failure is the future's exception."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="device", daemon=True)
            self._thread.start()
        future: Future[StepResult] = Future()
        self._batches.put((batch, future))
        return future

    def stop(self) -> None:
        """End the thread behind the last batch, without waiting for it."""
        self._batches.put(None)

    def _loop(self) -> None:
        while (work := self._batches.get()) is not None:
            batch, future = work
            try:
                result = self._runner.run(batch)
                # Before the next batch is begun: its rows may wait for these tokens.
                hand_on(batch, result)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
