"""A device without a model: the real KV bookkeeping, a named GPU's clock, and made-up tokens.

It knows no requests: like any runner it sees rows, and it draws from what lies in their pages.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.engine.batch import RunnerLimits, Sample, StepResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rampway_server.engine.batch import Batch, Row, Sampling
    from rampway_server.engine.roofline import Roofline

__all__ = ["SimulatedRunner", "chain_hash", "draw"]

ALPHABET = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz      ,.\n", dtype=np.uint8).astype(np.int32)
"""What the made-up model says: readable bytes, each as likely as any other entry here."""
END_PROBABILITY = 1 / 256
"""Chance of the end-of-sequence token at each position, so that texts end by themselves."""
LATE_SECONDS = 0.005
"""How late the host may hand over the next step without the device's clock losing time: real
engines prepare a step while the one before it runs, and a busy test machine is not a slow GPU."""

_MASK = (1 << 64) - 1
# Odd, so it has an inverse modulo 2^64; from the golden ratio, as in Knuth's multiplicative hash.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)


class SimulatedRunner:
    """Stores a hash of the prefix in every KV slot and draws the next token from the last slot.

    So greedy text is a function of the prompt alone, whatever the batch or the cache, and a page
    that is shared, moved, freed or overwritten wrongly changes the text.
    """

    def __init__(
        self,
        limits: RunnerLimits,
        eos_id: int,
        roofline: Roofline | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limits = limits
        self._eos = eos_id
        self._roofline = roofline
        """None is the instant device: no step takes time."""
        self._clock = clock
        self._sleep = sleep
        self._free_at = -math.inf
        self._slots = np.zeros(limits.num_pages * limits.page_size, dtype=np.uint64)

    @property
    def limits(self) -> RunnerLimits:
        """Sizes given at construction."""
        return self._limits

    def warm_up(self) -> None:
        """Nothing to compile."""

    def longest_step_seconds(self, max_batched_tokens: int) -> float:
        """Return the time of a full batch at the end of the longest context."""
        if self._roofline is None:
            return 0.0
        context = self._limits.context_length
        held = self._limits.num_pages * self._limits.page_size
        return self._roofline.seconds(max_batched_tokens, held, max_batched_tokens * context)

    def run(self, batch: Batch) -> StepResult:
        """Write the slots, draw, and return when the device would have finished."""
        done = self._finish_time(batch)
        samples = tuple(self._compute(row) for row in batch.rows)
        # An absolute deadline: what the host needed is not added to the step.
        if (wait := done - self._clock()) > 0:
            self._sleep(wait)
        return StepResult(samples)

    def _finish_time(self, batch: Batch) -> float:
        if self._roofline is None:
            return -math.inf
        now = self._clock()
        begin = self._free_at if now - self._free_at < LATE_SECONDS else now
        self._free_at = max(begin, self._free_at) + self._roofline.step_seconds(batch.rows)
        return self._free_at

    def _compute(self, row: Row) -> Sample | None:
        page, at = self._limits.page_size, row.start
        before = int(self._slots[self._slot(row, at - 1)]) if at else 0
        hashes = chain_hash(before, row.tokens)
        positions = np.arange(at, at + len(row.tokens))
        self._slots[row.pages[positions // page] * page + positions % page] = hashes
        if row.sampling is None:
            return None
        last = int(self._slots[self._slot(row, at + len(row.tokens) - 1)])
        return draw(last, row.sampling, self._eos)

    def _slot(self, row: Row, position: int) -> int:
        page = self._limits.page_size
        return int(row.pages[position // page]) * page + position % page


def chain_hash(before: int, tokens: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return one hash a token over everything up to it; `before` is the hash before the first.

    h[i] = h[i-1] * B + mix(token[i]) modulo 2^64, without a Python loop:
    h[i] = B^(i+1) * (before + sum of mix(token[j]) * B^-(j+1) for j <= i).
    """
    count = len(tokens)
    powers, inverses = _powers(count)
    mixed = _mix(tokens.astype(np.uint64) + np.uint64(1))
    sums = np.cumsum(mixed * inverses, dtype=np.uint64) + np.uint64(before)
    hashes: NDArray[np.uint64] = powers * sums
    return hashes


def draw(prefix_hash: int, sampling: Sampling, eos_id: int) -> Sample:
    """Return the made-up model's next token: uniform over the alphabet, keyed by the prefix.

    Greedy ignores the seed; otherwise seed and prefix decide. Bias and penalties do not apply to
    a model without logits, but a forbidden token is never drawn.
    """
    state = _mix_int(prefix_hash ^ (_mix_int(sampling.seed & _MASK) if sampling.temperature else 0))
    if state % round(1 / END_PROBABILITY) == 0 and eos_id not in sampling.forbidden:
        return _sample(eos_id, sampling, math.log(END_PROBABILITY), state)
    for _ in range(len(ALPHABET)):
        state = _mix_int(state + 1)
        token = int(ALPHABET[state % len(ALPHABET)])
        if token not in sampling.forbidden:
            break
    return _sample(token, sampling, _log_share(token), state)


def _log_share(token: int) -> float:
    return math.log((1 - END_PROBABILITY) * float(np.mean(token == ALPHABET)))


def _sample(token: int, sampling: Sampling, logprob: float, state: int) -> Sample:
    if not sampling.logprobs:
        return Sample(token)
    # All likely tokens of a uniform model are alike: the drawn one first, then the next by hash.
    start = state % len(ALPHABET)
    others = dict.fromkeys(int(t) for t in np.roll(ALPHABET, -start))
    ranked = sorted((t for t in others if t != token), key=_log_share, reverse=True)
    top = [(token, logprob), *((t, _log_share(t)) for t in ranked)]
    top.sort(key=lambda pair: -pair[1])
    return Sample(token, logprob, tuple(top[: sampling.logprobs]))


def _powers(count: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return B^1 ... B^count and the inverses."""
    powers, inverses = _power_table(max(64, 1 << (count - 1).bit_length()))
    return powers[:count], inverses[:count]


@cache
def _power_table(size: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A table a power of two, so that there are few."""
    powers, inverses = (
        np.cumprod(np.full(size, base, dtype=np.uint64), dtype=np.uint64)
        for base in (_BASE, _INVERSE)
    )
    return powers, inverses


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele et al. 2014), a row at a time."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
    return mixed


def _mix_int(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
