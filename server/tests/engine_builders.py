"""Builders for engine tests: small pools, a device that checks its own KV, and the oracle."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rampway_server.cache.select import CacheUnavailableError, open_cache
from rampway_server.engine.batch import RunnerLimits, Sampling
from rampway_server.engine.engine import Engine, Output
from rampway_server.engine.request import Request
from rampway_server.engine.scheduler import Scheduler, SchedulerLimits
from rampway_server.engine.simulated import SimulatedRunner, chain_hash, draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.cache.protocol import PrefixCache
    from rampway_server.engine.batch import Batch, StepResult
    from rampway_server.engine.engine import StepReport

EOS = 256
BACKENDS = ("rust", "python", "off")
GREEDY = Sampling(temperature=0.0)
_ids = itertools.count(1)


def cache_of(backend: str, num_pages: int, page_size: int) -> PrefixCache:
    """Return the backend, or skip where the Rust extension is not built."""
    try:
        return open_cache(backend, num_pages, page_size, require_rust=backend == "rust").cache
    except CacheUnavailableError as error:
        pytest.skip(str(error))


def request_of(prompt: Sequence[int], max_new_tokens: int = 8, **fields: object) -> Request:
    values: dict[str, object] = {
        "id": next(_ids),
        "prompt": np.asarray(prompt, dtype=np.int32),
        "sampling": GREEDY,
        "max_new_tokens": max_new_tokens,
        "arrived": 0.0,
        "stop_ids": frozenset({EOS}),
        **fields,
    }
    return Request(**values)  # type: ignore[arg-type]


def expected_tokens(request: Request) -> list[int]:
    """Return what the made-up model says to this prompt, computed without pages, batch or cache."""
    tokens = request.prompt.tolist()
    drawn: list[int] = []
    while len(drawn) < request.max_new_tokens:
        sampling = request.sampling
        if len(drawn) < request.min_new_tokens:
            sampling = Sampling(
                temperature=sampling.temperature, seed=sampling.seed, forbidden=(EOS,)
            )
        last = int(chain_hash(0, np.asarray(tokens, dtype=np.int32))[-1])
        token = draw(last, sampling, EOS).token
        drawn.append(token)
        tokens.append(token)
        if token in request.stop_ids and len(drawn) >= request.min_new_tokens:
            break
    return drawn


class FaithfulRunner(SimulatedRunner):
    """A simulated device that refuses a step whose rows do not hold the KV they claim."""

    def __init__(self, num_pages: int, page_size: int, context_length: int = 4096) -> None:
        super().__init__(RunnerLimits(num_pages, page_size, context_length, 512), EOS)
        slots = num_pages * page_size
        self._positions = np.full(slots, -1)
        self._tokens = np.full(slots, -1)
        self._page = page_size
        self.steps: list[list[int]] = []
        """Tokens computed, one list a step."""

    def run(self, batch: Batch) -> StepResult:
        self._check_writes(batch)
        for row in batch.rows:
            self._check_reads(row)
        for row in batch.rows:
            at = self._slots_of(row, row.start, row.start + len(row.tokens))
            self._positions[at] = np.arange(row.start, row.start + len(row.tokens))
            self._tokens[at] = row.tokens
        self.steps.append([len(row.tokens) for row in batch.rows])
        return super().run(batch)

    def _check_reads(self, row) -> None:
        assert len(row.tokens) >= 1
        assert len(row.pages) == -(-(row.start + len(row.tokens)) // self._page)
        assert 0 not in row.pages, "page 0 is reserved"
        assert len(set(row.pages.tolist())) == len(row.pages), "a page twice in one row"
        held = self._slots_of(row, 0, row.start)
        assert (self._positions[held] == np.arange(row.start)).all(), (
            "a position is not in its slot"
        )
        if row.start:
            chain = chain_hash(0, self._tokens[held].astype(np.int32))
            assert (self._slots[held] == chain).all(), "KV of another prefix"

    def _check_writes(self, batch: Batch) -> None:
        readers: dict[int, int] = {}
        for row in batch.rows:
            for page in row.pages.tolist():
                readers[page] = readers.get(page, 0) + 1
        for row in batch.rows:
            for page in row.pages[row.start // self._page :].tolist():
                assert readers[page] == 1, "a page is written that another row uses"

    def _slots_of(self, row, start: int, end: int) -> np.ndarray:
        positions = np.arange(start, end)
        return row.pages[positions // self._page] * self._page + positions % self._page


class Bench:
    """A scheduler and an engine over one small pool, stepped by hand in virtual time."""

    def __init__(
        self,
        backend: str = "python",
        *,
        num_pages: int = 64,
        page_size: int = 4,
        max_num_seqs: int = 8,
        max_batched_tokens: int = 32,
        runner: SimulatedRunner | None = None,
        overlap: bool = False,
    ) -> None:
        self.now = 0.0
        self.cache = cache_of(backend, num_pages, page_size)
        self.scheduler = Scheduler(
            self.cache,
            SchedulerLimits(max_num_seqs, max_batched_tokens, share_prefixes=backend != "off"),
        )
        self.runner = runner or FaithfulRunner(num_pages, page_size)
        self.reports: list[StepReport] = []
        self.engine = Engine(
            self.runner, self.scheduler, self.reports.append, lambda: self.now, overlap=overlap
        )

    def outputs(self) -> list[Output]:
        """Return what came for each request, in order; as the front sees it."""
        return [
            output
            for report in self.reports
            for output in (*(Output(*token) for token in report.tokens), *report.ended)
        ]

    def tokens_of(self, request: Request) -> list[int]:
        return [
            output.sample.token
            for output in self.outputs()
            if output.request_id == request.id and output.sample is not None
        ]

    def run(self, *requests: Request, max_steps: int = 10_000) -> None:
        """Submit and step until nothing is left to do, checking the cache after every step."""
        self.engine.submit(list(requests))
        for _ in range(max_steps):
            if not self.engine.step():
                return
            self.check()
        raise AssertionError("work did not end")

    def check(self) -> None:
        self.cache.check()
        stats = self.cache.stats()
        total = (
            stats.free
            + stats.evictable
            + stats.protected
            + stats.owned
            + stats.deferred
            + stats.reserved
        )
        assert total == stats.total
        used = sum(request.used - request.held for request in self.scheduler.running)
        assert stats.owned == used, "pages are owned by nobody, or by two"
        assert all(request.handle is None for request in self.scheduler.waiting)

    def assert_nothing_is_held(self) -> None:
        stats = self.cache.stats()
        assert (stats.handles, stats.owned, stats.protected, stats.deferred) == (0, 0, 0, 0)
        assert stats.free + stats.evictable + stats.reserved == stats.total
