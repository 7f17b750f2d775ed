"""Decides what each step computes: `schedule` makes a batch, `update` takes what it drew.

It knows neither tensors, text, threads nor the clock: `now` is an argument.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from rampway_server.engine.batch import Batch
from rampway_server.engine.request import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from typing_extensions import Buffer

    from rampway_server.cache.protocol import PrefixCache
    from rampway_server.engine.batch import Row, Sample, StepResult
    from rampway_server.engine.request import FinishReason, Request

__all__ = ["Drawn", "Plan", "Scheduler", "SchedulerLimits", "Update"]

QUEUE_WINDOW = 128
"""Waiting requests whose order is chosen by cached prefix; behind them it is first come."""
TOKENS_PER_WAITED_SECOND = 2000.0
"""Ageing: a cached prefix of this many tokens is worth one second of waiting, and no more."""
PEEKS_PER_STEP = 16
"""Waiting requests whose cached prefix is looked up again in one step: bounded work."""
RESERVE_GROWTH, RESERVE_DECAY, MAX_RESERVE = 2.0, 0.98, 8.0
"""Pages kept free for each running request at admission: doubled by a preemption, then decaying,
so that a request that was just preempted does not come back only to preempt another."""


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The bounds of one step."""

    max_num_seqs: int
    max_batched_tokens: int
    share_prefixes: bool = True
    """False with the prefix cache off: then waiting for somebody else's prefix gains nothing."""


class Drawn(NamedTuple):
    """The last token of a request."""

    request: Request
    sample: Sample
    finish: FinishReason


@dataclass(slots=True)
class Update:
    """What a step drew."""

    tokens: list[tuple[int, Sample]] = field(default_factory=list)
    """Request id and token of those that go on; plain tuples, because this is the usual case."""
    ended: list[Drawn] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Plan:
    """One step: the rows to compute and whose they are, in the same order."""

    step: int
    tokens_left: int
    requests: list[Request | None] = field(default_factory=list)
    """None for a row whose request has left meanwhile: what it draws is nobody's."""
    rows: list[Row] = field(default_factory=list)
    decodes: int = 0
    """How many rows, from the first on, compute one token behind the prompt."""
    admitted: list[Request] = field(default_factory=list)
    """Requests that run for the first time."""
    expired: list[Request] = field(default_factory=list)
    """Requests whose deadline passed; they hold nothing any more."""

    def batch(self) -> Batch:
        """Return the rows as the contract with the model."""
        return Batch(self.step, tuple(self.rows))


class Scheduler:
    """Continuous batching over a paged KV pool: decode first, prompt chunks in the rest.

    `schedule` may be called again before `update` has the result of the step before: the engine
    overlaps them. What a step in flight may still read or write is freed behind a fence.
    """

    def __init__(self, cache: PrefixCache, limits: SchedulerLimits) -> None:
        self.cache = cache
        self.limits = limits
        if limits.max_num_seqs > limits.max_batched_tokens:
            raise ValueError(
                f"max_num_seqs is above max_batched_tokens: got {limits.max_num_seqs} and"
                f" {limits.max_batched_tokens}, need a token a sequence"
            )
        self._prompts: list[Request] = []
        """Running, with prompt tokens that no step computes yet."""
        self._decoding: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.preemptions = 0
        self._page = cache.page_size
        self._steps = 0
        self._flights: list[Plan] = []
        """Steps without a result, oldest first."""
        self._fence = 0
        """The last step something freed waits for."""
        self._preempted_at = 0
        self._reserve = 1.0
        self._next_deadline = inf
        self._peek_at = 0

    @property
    def running(self) -> list[Request]:
        """Requests that hold pages."""
        return [*self._decoding, *self._prompts]

    @property
    def num_running(self) -> int:
        """How many requests hold pages."""
        return len(self._decoding) + len(self._prompts)

    @property
    def has_work(self) -> bool:
        """Whether a step would do something."""
        return bool(self._decoding or self._prompts or self.waiting)

    def fits(self, total_tokens: int) -> bool:
        """Whether a request of this many tokens can run at all, alone in the pool."""
        return self._pages(total_tokens) <= self.cache.num_pages - 1

    def add(self, request: Request) -> None:
        """Queue a request; it must fit the pool (`fits`)."""
        total = len(request.tokens)
        if not self.fits(total):
            raise ValueError(f"request of {total} tokens does not fit the KV pool")
        request.row = np.zeros(self._pages(total), dtype=np.int32)
        self.waiting.append(request)
        self._next_deadline = min(self._next_deadline, request.queue_deadline, request.deadline)

    def abort(self, ids: Iterable[int]) -> list[Request]:
        """Drop requests and everything they hold; unknown and finished ids do nothing."""
        wanted = set(ids)
        found = [r for r in (*self.running, *self.waiting) if r.id in wanted]
        self._drop(found)
        return found

    def fail(self, plan: Plan) -> list[Request]:
        """Drop the requests whose step failed: what it wrote is never published."""
        lost = [r for r in plan.requests if r is not None]
        self._land(plan)
        self._drop(lost)
        return lost

    def schedule(self, now: float) -> Plan:
        """Return the next step; its rows are empty when nothing can be computed now."""
        self._steps += 1
        plan = Plan(self._steps, self.limits.max_batched_tokens)
        if now >= self._next_deadline:
            self._expire(plan, now)
        preempted_before = self.preemptions
        self._plan_decodes(plan)
        self._plan_prompts(plan)
        # Pages just ran out: admitting now would only preempt again.
        if self.waiting and self.preemptions == preempted_before:
            self._admit(plan, now)
        self._reserve = max(1.0, self._reserve * RESERVE_DECAY)
        if plan.rows:
            self._flights.append(plan)
        return plan

    def update(self, plan: Plan, result: StepResult) -> Update:
        """Take a step's result: advance, publish full prompt pages, finish; return what was drawn."""
        self._land(plan)
        done = Update()
        tokens, decodes = done.tokens, plan.decodes
        for request, sample in zip(plan.requests[:decodes], result.samples, strict=False):
            if request is None or sample is None:
                continue
            token, length = sample.token, request.length
            request.tokens[length] = token
            request.computed = length
            request.length = length + 1
            if token in request.stop_ids or length + 1 == len(request.tokens):
                finish = request.finish_of(token)
                if finish:
                    done.ended.append(Drawn(request, sample, finish))
                    continue
            tokens.append((request.id, sample))
        for at in range(decodes, len(plan.rows)):
            if (request := plan.requests[at]) is not None:
                self._update_prompt(request, plan.rows[at], result.samples[at], done)
        for event in done.ended:
            self._finish(event.request)
        if done.ended:
            self._drop_ended()
        return done

    def _update_prompt(
        self, request: Request, row: Row, sample: Sample | None, done: Update
    ) -> None:
        request.computed = row.start + len(row.tokens)
        self._publish(request)
        if sample is None:
            return
        request.tokens[request.length] = sample.token
        request.length += 1
        finish = request.finish_of(sample.token)
        if finish:
            done.ended.append(Drawn(request, sample, finish))
        else:
            done.tokens.append((request.id, sample))

    def _land(self, plan: Plan) -> None:
        """Note that a step's result is known: what waited for it is free."""
        self._flights.remove(plan)
        if self._fence:
            self.cache.retire(plan.step)
            if plan.step >= self._fence:
                self._fence = 0

    def _plan_decodes(self, plan: Plan) -> None:
        requests, rows, odd = plan.requests, plan.rows, plan.step & 1
        # A copy: a request that needs a page may preempt another.
        for request in tuple(self._decoding):
            position = request.scheduled
            if position < request.room and request.turns is not None:
                row = request.turns[odd]
                row.start = position
                request.scheduled = position + 1
                requests.append(request)
                rows.append(row)
            elif self._may_decode(request, plan):
                row = request.decode_row(plan.step, self._page)
                requests.append(request)
                rows.append(row)
        plan.decodes = len(rows)
        plan.tokens_left -= len(rows)

    def _may_decode(self, request: Request, plan: Plan) -> bool:
        """Whether the request goes on in this step; gets the page that its next position needs."""
        if request.phase is not Phase.RUNNING or request.draws_last or request.waits_for_token:
            return False
        need = self._pages(request.scheduled + 1) - request.used
        while need > 0 and not self.cache.alloc(need, _buffer(request.row), request.used):
            # What was just given up is free only when the steps in flight have ended.
            if any(flight.step <= self._preempted_at for flight in self._flights):
                return False
            victim = max(self.running, key=lambda r: (r.priority, r.arrived, r.id))
            self._preempt(victim, plan)
            if victim is request:
                return False
        request.used += max(need, 0)
        return True

    def _plan_prompts(self, plan: Plan) -> None:
        for request in self._prompts:
            if plan.tokens_left == 0:
                break
            self._add_chunk(plan, request)
        self._sort_out_prompts()

    def _sort_out_prompts(self) -> None:
        """Move prompts of which every token is scheduled to those that decode."""
        if any(request.remaining == 0 for request in self._prompts):
            self._decoding += [r for r in self._prompts if r.remaining == 0]
            self._prompts = [r for r in self._prompts if r.remaining]

    def _preempt(self, victim: Request, plan: Plan) -> None:
        """Send a running request back to the queue's front; its full pages go to the tree."""
        if victim in plan.requests:
            at = plan.requests.index(victim)
            del plan.requests[at], plan.rows[at]
        (self._prompts if victim in self._prompts else self._decoding).remove(victim)
        self._publish(victim)
        self._release(victim)
        victim.move_to(Phase.WAITING)
        self.waiting.appendleft(victim)
        self.preemptions += 1
        self._preempted_at = plan.step - 1
        self._reserve = min(self._reserve * RESERVE_GROWTH, MAX_RESERVE)

    def _admit(self, plan: Plan, now: float) -> None:
        """Start waiting requests in order until tokens, sequences or pages run out."""
        if not plan.tokens_left or self.num_running >= self.limits.max_num_seqs:
            return
        computing = self._pages_being_computed()
        admitted = 0
        for request in self._queue_order():
            if plan.tokens_left == 0 or self.num_running >= self.limits.max_num_seqs:
                break
            matched = self._lock_prefix(request)
            if self._is_being_computed(request, computing):
                self._release(request)
                continue
            if not self._take_whole_prompt(request):
                self._release(request)
                # Nobody overtakes: a long prompt would wait for ever behind short ones.
                break
            self._start(request, matched, plan, now)
            self._add_chunk(plan, request)
            if self.limits.share_prefixes:
                self._note_computing(request, computing)
            admitted += 1
        if admitted:
            self.waiting = deque(r for r in self.waiting if r.phase is Phase.WAITING)
            self._sort_out_prompts()

    def _queue_order(self) -> list[Request]:
        """Return the first waiting requests, longest cached prefix first, aged.

        Everyone ages at the same rate, so the key needs no clock: a request can be overtaken only
        by those that came less than `matched / TOKENS_PER_WAITED_SECOND` seconds after it.
        """
        window = list(islice(self.waiting, QUEUE_WINDOW))
        if len(window) > 1 and self.limits.share_prefixes:
            for offset in range(min(PEEKS_PER_STEP, len(window))):
                request = window[(self._peek_at + offset) % len(window)]
                request.peeked = self.cache.peek(
                    request.namespace, _buffer(request.tokens[: request.length]), request.length - 1
                )
            self._peek_at = (self._peek_at + PEEKS_PER_STEP) % len(window)
        # A preempted request waits at the front with its old arrival: it is not counted twice.
        window.sort(
            key=lambda r: (
                r.priority,
                r.admitted is None,
                r.arrived * TOKENS_PER_WAITED_SECOND - r.peeked,
            )
        )
        return window

    def _lock_prefix(self, request: Request) -> int:
        """Match and lock in one call; at least one token is left to compute."""
        match = self.cache.match_lock(
            request.namespace, _buffer(request.tokens[: request.length]), request.length - 1
        )
        request.handle = match.handle
        request.held = request.used = self.cache.fill_pages(match.handle, _buffer(request.row))
        request.computed = request.scheduled = match.matched_tokens
        return match.matched_tokens

    def _take_whole_prompt(self, request: Request) -> bool:
        """Allocate all pages the known tokens need, so that only decode can run out later."""
        need = self._pages(request.length) - request.used
        spare = ceil(self._reserve * self.num_running)
        if spare and self.cache.available() < need + spare:
            return False
        if not self.cache.alloc(need, _buffer(request.row), request.used):
            return False
        request.used += need
        return True

    def _start(self, request: Request, matched: int, plan: Plan, now: float) -> None:
        request.move_to(Phase.RUNNING)
        self._prompts.append(request)
        if request.admitted is None:
            request.admitted = now
            request.cached_tokens = min(matched, request.prompt_length)
            plan.admitted.append(request)

    def _add_chunk(self, plan: Plan, request: Request) -> None:
        count = min(request.remaining, plan.tokens_left)
        plan.requests.append(request)
        plan.rows.append(request.next_row(count, self._page))
        plan.tokens_left -= count

    def _pages_being_computed(self) -> dict[tuple[bytes, int, bytes], Request]:
        """Return, by namespace, index and tokens, the next page each running prompt will publish."""
        computing: dict[tuple[bytes, int, bytes], Request] = {}
        if self.limits.share_prefixes:
            for request in self.running:
                if request.computed < request.prompt_length:
                    self._note_computing(request, computing)
        return computing

    def _note_computing(
        self, request: Request, computing: dict[tuple[bytes, int, bytes], Request]
    ) -> None:
        if (request.held + 1) * self._page <= request.prompt_length:
            computing.setdefault(self._next_page(request), request)

    def _is_being_computed(
        self, request: Request, computing: dict[tuple[bytes, int, bytes], Request]
    ) -> bool:
        """Whether a running prompt will publish this request's next page: then it can wait."""
        end = (request.held + 1) * self._page
        if not computing or end > request.length - 1:
            return False
        other = computing.get(self._next_page(request))
        return other is not None and np.array_equal(other.tokens[:end], request.tokens[:end])

    def _next_page(self, request: Request) -> tuple[bytes, int, bytes]:
        start = request.held * self._page
        return (
            request.namespace,
            request.held,
            request.tokens[start : start + self._page].tobytes(),
        )

    def _publish(self, request: Request) -> None:
        """Put computed full pages into the tree; where somebody was first, use theirs."""
        if request.handle is None or request.computed // self._page <= request.held:
            return
        done = self.cache.insert(
            request.handle, _buffer(request.tokens), _buffer(request.row), request.computed
        )
        if done.duplicates:
            self.cache.fill_pages(request.handle, _buffer(request.row))
            self.cache.free(done.duplicates, self._fence_now())
        request.held = done.held

    def _finish(self, request: Request) -> None:
        """End a running request: publish what it computed, give back the rest."""
        self._publish(request)
        self._release(request)
        request.move_to(Phase.FINISHED)

    def _release(self, request: Request) -> None:
        """Give up every page and the lock; the one way out for finish, abort and preempt."""
        if request.handle is None:
            return
        for flight in self._flights:
            if request in flight.requests:
                flight.requests[flight.requests.index(request)] = None
        fence = self._fence_now()
        if request.used > request.held:
            self.cache.free(_buffer(request.row[request.held : request.used]), fence)
        self.cache.release(request.handle, fence)
        request.handle = request.turns = None
        request.held = request.used = request.computed = request.scheduled = request.room = 0

    def _fence_now(self) -> int | None:
        """Return the step whose end what is freed now must wait for, None if none is in flight."""
        if not self._flights:
            return None
        self._fence = self._flights[-1].step
        return self._fence

    def _drop(self, requests: list[Request]) -> None:
        for request in requests:
            self._release(request)
            request.move_to(Phase.FINISHED)
        if requests:
            self._drop_ended()
            self.waiting = deque(r for r in self.waiting if r.phase is Phase.WAITING)

    def _drop_ended(self) -> None:
        self._decoding = [r for r in self._decoding if r.phase is Phase.RUNNING]
        self._prompts = [r for r in self._prompts if r.phase is Phase.RUNNING]

    def _expire(self, plan: Plan, now: float) -> None:
        def due(request: Request) -> float:
            queued = request.queue_deadline if request.admitted is None else inf
            return min(queued, request.deadline)

        everyone = (*self.running, *self.waiting)
        plan.expired = [r for r in everyone if due(r) <= now]
        self._drop(plan.expired)
        self._next_deadline = min((due(r) for r in everyone if due(r) > now), default=inf)

    def _pages(self, tokens: int) -> int:
        return -(-tokens // self._page)


def _buffer(array: NDArray[np.int32]) -> Buffer:
    """Return the array itself: numpy's stubs state its buffer only from Python 3.12 on."""
    return cast("Buffer", array)
