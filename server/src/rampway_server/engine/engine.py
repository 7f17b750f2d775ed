"""The step loop: one thread that reads commands, schedules, runs the device and reports.

It knows no HTTP, no text and no policy: what runs next is the scheduler's affair.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from rampway_server.engine.batch import hand_on
from rampway_server.engine.overlap import DeviceThread, Flight
from rampway_server.engine.scheduler import Update
from rampway_server.errors import EngineDead, RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rampway_server.cache.protocol import CacheStats
    from rampway_server.engine.batch import Runner, Sample
    from rampway_server.engine.request import FinishReason, Request
    from rampway_server.engine.scheduler import Plan, Scheduler

__all__ = ["Admitted", "Engine", "Output", "StepReport"]

IDLE_BEAT_SECONDS = 1.0
MAX_FAILED_STEPS, FAILED_STEPS_WINDOW_SECONDS = 3, 600.0
"""A failing step costs its batch; this many within the window end the process."""

log = structlog.get_logger(__name__)


class Output(NamedTuple):
    """What one step did for one request; `finish` or `error` ends it."""

    request_id: int
    sample: Sample | None
    finish: FinishReason | None = None
    error: RequestError | None = None


class Admitted(NamedTuple):
    """A request began to run for the first time."""

    request_id: int
    queued_seconds: float
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """Everything the front learns from one step, in one hand-over."""

    tokens: list[tuple[int, Sample]]
    """Request id and drawn token of each sequence that goes on."""
    ended: list[Output]
    admitted: list[Admitted]
    running: int
    waiting: int
    preemptions: int
    """Since the start."""
    pages: CacheStats


class Engine:
    """Owns scheduler, cache and device; every public method but `step` is safe from any thread."""

    def __init__(
        self,
        runner: Runner,
        scheduler: Scheduler,
        sink: Callable[[StepReport], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        overlap: bool = False,
    ) -> None:
        self._runner = runner
        self._device = DeviceThread(runner) if overlap else None
        """With it the next step is planned while one is computed; without it they alternate."""
        self._flight: Flight | None = None
        self._scheduler = scheduler
        self._sink = sink
        self._clock = clock
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._woken_by: Callable[[], None] | None = None
        self._closed = threading.Event()
        self._failures: deque[float] = deque(maxlen=MAX_FAILED_STEPS)
        self._thread: threading.Thread | None = None
        self._beat = clock()

    def start(self, on_death: Callable[[BaseException], None]) -> None:
        """Run the loop in its own thread; `on_death` is called there if it ends by an error."""
        self._thread = threading.Thread(
            target=self._loop, args=(on_death,), name="engine", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """End the loop after the step that runs now; waits for it up to the timeout."""
        self._closed.set()
        self._commands.put(lambda: None)
        if self._thread is not None:
            self._thread.join(timeout_seconds)
        if self._device is not None:
            self._device.stop()

    def submit(self, requests: list[Request]) -> None:
        """Queue requests for the next step."""

        def add() -> None:
            for request in requests:
                self._scheduler.add(request)

        self._commands.put(add)

    def abort(self, ids: Iterable[int]) -> None:
        """Drop requests before the next step; their pages are free then. Unknown ids do nothing."""
        wanted = list(ids)

        def drop() -> None:
            self._scheduler.abort(wanted)

        self._commands.put(drop)

    def clear_cache(self) -> Future[int]:
        """Drop every cached page no request uses, between two steps; the result is how many."""
        future: Future[int] = Future()

        def clear() -> None:
            future.set_result(self._scheduler.cache.clear())

        self._commands.put(clear)
        return future

    def heartbeat_age_seconds(self) -> float:
        """Seconds since the loop last went round; above the longest legal step it is stuck."""
        return max(0.0, self._clock() - self._beat)

    def step(self) -> bool:
        """Obey commands, then run one step if there is work; return whether there was."""
        obeyed = self._obey()
        if not self._scheduler.has_work and self._flight is None:
            if obeyed:
                # An abort may have ended the last request: what is free now must be known.
                self._report(Update(), [], [])
            return False
        plan = self._scheduler.schedule(self._clock())
        ended = [Output(r.id, None, error=_expired(r)) for r in plan.expired]
        done = Update()
        if plan.rows or self._flight is not None:
            done, failed = self._overlap(plan) if self._device else self._alternate(plan)
            ended += failed
        elif self._scheduler.has_work:
            raise EngineDead("the scheduler made no progress although requests wait")
        self._report(done, ended, plan.admitted)
        return True

    def _alternate(self, plan: Plan) -> tuple[Update, list[Output]]:
        """Compute the step that was planned just now, and wait for it."""
        batch = plan.batch()
        try:
            result = self._runner.run(batch)
        except Exception as error:
            return Update(), self._fail(plan, error)
        hand_on(batch, result)
        return self._scheduler.update(plan, result), []

    def _overlap(self, plan: Plan) -> tuple[Update, list[Output]]:
        """Put this step behind the one in flight, and wait for that one."""
        assert self._device is not None
        flight = self._flight
        self._flight = Flight(plan, self._device.launch(plan.batch())) if plan.rows else None
        if flight is None:
            return Update(), []
        try:
            result = flight.result.result()
        except Exception as error:
            return Update(), self._fail(flight.plan, error)
        return self._scheduler.update(flight.plan, result), []

    def _fail(self, plan: Plan, error: Exception) -> list[Output]:
        lost = self._scheduler.fail(plan)
        # One behind a step that failed computes for nobody: that is the same failure again.
        if lost:
            self._count_failure(error)
        return [Output(request.id, None, error=_failed()) for request in lost]

    def _count_failure(self, error: Exception) -> None:
        now = self._clock()
        self._failures.append(now)
        log.error("step_failed", error=repr(error), exc_info=error)
        full = len(self._failures) == MAX_FAILED_STEPS
        if full and now - self._failures[0] <= FAILED_STEPS_WINDOW_SECONDS:
            raise EngineDead(f"{MAX_FAILED_STEPS} steps failed, the last one by {error!r}")

    def _report(self, done: Update, ended: list[Output], admitted: list[Request]) -> None:
        scheduler = self._scheduler
        self._sink(
            StepReport(
                done.tokens,
                [*ended, *(Output(e.request.id, e.sample, e.finish) for e in done.ended)],
                [
                    Admitted(
                        r.id, (r.admitted or 0.0) - r.arrived, r.prompt_length, r.cached_tokens
                    )
                    for r in admitted
                ],
                scheduler.num_running,
                len(scheduler.waiting),
                scheduler.preemptions,
                scheduler.cache.stats(),
            )
        )

    def _loop(self, on_death: Callable[[BaseException], None]) -> None:
        try:
            while not self._closed.is_set():
                self._beat = self._clock()
                if not self.step():
                    self._wait()
        except BaseException as error:
            on_death(error)

    def _wait(self) -> None:
        """Sleep until there is a command, at most one beat; it goes back for `step` to obey."""
        with contextlib.suppress(queue.Empty):
            self._woken_by = self._commands.get(timeout=IDLE_BEAT_SECONDS)

    def _obey(self) -> bool:
        """Run the commands that wait; return whether there was one."""
        obeyed = False
        if self._woken_by is not None:
            command, self._woken_by = self._woken_by, None
            command()
            obeyed = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._commands.get_nowait()()
                obeyed = True
        return obeyed


def _expired(request: Request) -> RequestError:
    if request.admitted is None:
        return RequestError(
            "request waited too long in the queue: send it again later",
            status=503,
            kind="overloaded_error",
            code="queue_timeout",
            retry_after_seconds=1,
        )
    return RequestError(
        "request ran longer than the server allows: ask for fewer tokens",
        status=504,
        kind="server_error",
        code="request_timeout",
    )


def _failed() -> RequestError:
    return RequestError(
        "the step that computed this request failed",
        status=500,
        kind="server_error",
        code="engine_error",
    )
