"""Between the event loop and the engine thread: requests in, one hand-over a step out.

It knows neither HTTP nor text; all its state belongs to the event loop's thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rampway_server.errors import RequestError

if TYPE_CHECKING:
    import asyncio

    from rampway_server.cache.protocol import CacheStats
    from rampway_server.engine.batch import Sample
    from rampway_server.engine.engine import Engine, StepReport
    from rampway_server.engine.request import FinishReason, Request
    from rampway_server.telemetry import Telemetry

__all__ = ["AdmissionLimits", "Bridge", "Came", "ClientGone", "Stream"]

MAX_REPORTS_AHEAD = 8
"""Steps the engine may be ahead of the loop: past that it waits, or a fast device would starve the
loop of the interpreter and make its own tokens late. What came meanwhile leaves in one write a
stream, which is most of what a token costs."""


class ClientGone(Exception):
    """The client closed the connection before the answer was complete."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much may wait before 429."""

    max_queued_requests: int
    max_queued_tokens: int
    prefill_tokens_per_second: float
    """For Retry-After only."""


class Came(NamedTuple):
    """What one step did for one choice; `finish` or `error` ends it."""

    choice: int
    sample: Sample | None
    finish: FinishReason | None
    error: RequestError | None


class Stream:
    """The outputs of the requests of one HTTP call, as they come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._outputs: list[Came] = []
        self._waiter: asyncio.Future[None] | None = None
        self._gone: BaseException | None = None
        self.cached_tokens: dict[int, int] = {}
        """By choice, known before its first output."""

    async def take(self) -> list[Came]:
        """Return what has come since, waiting for at least one output; raises what `fail` was told."""
        while not self._outputs:
            if self._gone is not None:
                raise self._gone
            self._waiter = self._loop.create_future()
            await self._waiter
        taken, self._outputs = self._outputs, []
        return taken

    def push(self, came: Came) -> None:
        """Add an output and wake the taker."""
        self._outputs.append(came)
        if len(self._outputs) == 1:
            self._wake()

    def fail(self, error: BaseException) -> None:
        """End the stream with `error`; what has come but was not taken is lost."""
        if self._gone is None:
            self._gone = error
            self._outputs = []
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


@dataclass(slots=True)
class _Live:
    """A request the engine has and has not finished."""

    stream: Stream
    index: int
    prompt_tokens: int
    arrived: float
    counted: bool
    """False for our own probes: they are no traffic."""
    waiting: bool = True
    last_token_at: float | None = None


@dataclass(slots=True)
class _Timings:
    """What one report adds to the histograms, observed at once."""

    ttft: list[float] = field(default_factory=list)
    inter_token: Counter[float] = field(default_factory=Counter)
    """How many had their last token at this time: those of one step came together."""
    e2e: list[float] = field(default_factory=list)
    tokens: int = 0


class Bridge:
    """Admits requests, routes what steps drew to their streams, and feeds telemetry."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: AdmissionLimits,
        telemetry: Telemetry,
        pages: CacheStats,
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._telemetry = telemetry
        self.pages = pages
        """As of the last report."""
        self._engine: Engine | None = None
        self._live: dict[int, _Live] = {}
        self._queued_tokens = 0
        self._queued = 0
        self._ahead = threading.Semaphore(MAX_REPORTS_AHEAD)
        self._reports: deque[tuple[StepReport, bool]] = deque()
        self._called = False

    def attach(self, engine: Engine) -> None:
        """Send requests to this engine from now on."""
        self._engine = engine

    def sink(self, report: StepReport) -> None:
        """Hand a report over to the loop; called on the engine's thread."""
        # A loop that is stuck for a second must not look like a stuck engine as well.
        counted = self._ahead.acquire(timeout=1.0)
        self._reports.append((report, counted))
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._drain)

    @property
    def unfinished(self) -> int:
        """Requests the engine has not finished."""
        return len(self._live)

    def open(self, requests: list[Request], *, counted: bool = True) -> Stream:
        """Give the engine the requests of one call, all or none; raises 429 when the queue is full."""
        assert self._engine is not None
        tokens = sum(request.prompt_length for request in requests)
        self._require_room(len(requests), tokens)
        stream = Stream(self._loop)
        for index, request in enumerate(requests):
            self._live[request.id] = _Live(
                stream, index, request.prompt_length, request.arrived, counted
            )
        self._queued += len(requests)
        self._queued_tokens += tokens
        self._engine.submit(requests)
        return stream

    def close(self, ids: list[int]) -> None:
        """Abort what is unfinished of `ids`: no output follows, their pages are free next step."""
        unfinished = [i for i in ids if i in self._live]
        for request_id in unfinished:
            self._forget(request_id)
        if unfinished and self._engine is not None:
            self._engine.abort(unfinished)

    def fail_all(self, error: BaseException) -> None:
        """End every stream with `error`."""
        for stream in {live.stream for live in self._live.values()}:
            stream.fail(error)

    def _require_room(self, requests: int, tokens: int) -> None:
        limits = self._limits
        # An empty queue takes a single call of any legal size, or it could never be served.
        if not self._queued or (
            self._queued + requests <= limits.max_queued_requests
            and self._queued_tokens + tokens <= limits.max_queued_tokens
        ):
            return
        seconds = self._queued_tokens / max(limits.prefill_tokens_per_second, 1.0)
        raise RequestError(
            f"queue is full: {self._queued} requests with {self._queued_tokens} prompt tokens wait",
            status=429,
            kind="rate_limit_error",
            code="queue_full",
            retry_after_seconds=min(30, max(1, round(seconds))),
        )

    def _drain(self) -> None:
        # First: a report that comes while we are busy here calls again, or is taken now.
        self._called = False
        while self._reports:
            report, counted = self._reports.popleft()
            if counted:
                self._ahead.release()
            self._deliver(report)

    def _deliver(self, report: StepReport) -> None:
        self.pages = report.pages
        now = time.monotonic()
        self._note_admitted(report)
        timings = _Timings()
        lives = self._live
        for request_id, sample in report.tokens:
            live = lives.get(request_id)
            if live is not None:
                if live.counted:
                    self._note_token(live, now, timings)
                live.stream.push(tuple.__new__(Came, (live.index, sample, None, None)))
        for output in report.ended:
            live = lives.get(output.request_id)
            if live is None:
                continue
            if output.sample is not None and live.counted:
                self._note_token(live, now, timings)
            self._forget(output.request_id)
            if output.error is None and live.counted:
                timings.e2e.append(now - live.arrived)
            live.stream.push(Came(live.index, output.sample, output.finish, output.error))
        self._observe(report, timings, now)

    def _note_admitted(self, report: StepReport) -> None:
        counted = []
        for admitted in report.admitted:
            live = self._live.get(admitted.request_id)
            if live is not None:
                self._unqueue(live)
                live.stream.cached_tokens[live.index] = admitted.cached_tokens
            # One that was aborted meanwhile was computed, too: it is part of the hit rate.
            if live is None or live.counted:
                counted.append(admitted)
        if counted:
            telemetry = self._telemetry
            telemetry.prompt_tokens.inc(sum(a.prompt_tokens for a in counted))
            telemetry.cached_tokens.inc(sum(a.cached_tokens for a in counted))
            telemetry.queue.observe(a.queued_seconds for a in counted)
            telemetry.prompt_length.observe(a.prompt_tokens for a in counted)

    def _note_token(self, live: _Live, now: float, timings: _Timings) -> None:
        timings.tokens += 1
        if live.last_token_at is None:
            timings.ttft.append(now - live.arrived)
        else:
            timings.inter_token[live.last_token_at] += 1
        live.last_token_at = now

    def _observe(self, report: StepReport, timings: _Timings, now: float) -> None:
        telemetry = self._telemetry
        telemetry.ttft.observe(timings.ttft)
        for last, count in timings.inter_token.items():
            telemetry.inter_token.observe_many(now - last, count)
        telemetry.e2e.observe(timings.e2e)
        if timings.tokens:
            telemetry.generated_tokens.inc(timings.tokens)
        telemetry.observe_engine(
            running=report.running,
            waiting=report.waiting,
            preemptions=report.preemptions,
            pages=report.pages,
        )

    def _forget(self, request_id: int) -> None:
        self._unqueue(self._live.pop(request_id))

    def _unqueue(self, live: _Live) -> None:
        if live.waiting:
            live.waiting = False
            self._queued -= 1
            self._queued_tokens -= live.prompt_tokens
