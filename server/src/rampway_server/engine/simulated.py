"""A device without a model: the real KV bookkeeping, a named GPU's clock, and made-up tokens.

It knows no requests: like any runner it sees rows, and it draws from what lies in their pages.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.engine.batch import RunnerLimits, Sample, StepResult
from rampway_server.engine.request import needs_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from rampway_server.engine.batch import Batch, Row, Sampling
    from rampway_server.engine.roofline import Roofline

__all__ = ["SimulatedRunner", "chain_hash", "draw", "next_hash"]

ALPHABET = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz      ,.\n", dtype=np.uint8).astype(np.int32)
"""What the made-up model says: readable bytes, each as likely as any other entry here."""
END_ONE_IN = 256
"""One token in so many is the end of the sequence, so that texts end by themselves."""
OUTSIDE_LOGIT = -20.0
SPOKEN = np.zeros(128, dtype=np.bool_)
SPOKEN[np.frombuffer(b"\n" + bytes(range(0x20, 0x7F)), dtype=np.uint8)] = True
"""Under a grammar: readable ASCII, so that free parts of a text have no broken characters."""
CLOSERS = np.frombuffer(b'"}]<', dtype=np.uint8)
CLOSE_ONE_IN = 4
"""Under a grammar: how often something is closed where it could also go on."""
LATE_SECONDS = 0.005
"""How late the host may hand over the next step without the device's clock losing time: real
engines prepare a step while the one before it runs, and a busy test machine is not a slow GPU."""

_MASK = (1 << 64) - 1
# Odd, so it has an inverse modulo 2^64; from the golden ratio, as in Knuth's multiplicative hash.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)


_PLAIN = [Sample(token) for token in ALPHABET.tolist()]


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
        plain = [row for row in batch.rows if _is_plain_decode(row)]
        if len(plain) == len(batch.rows):
            samples: Iterable[Sample | None] = self._decode(plain)
        else:
            drawn = iter(self._decode(plain))
            samples = [
                next(drawn) if _is_plain_decode(row) else self._compute(row) for row in batch.rows
            ]
        # An absolute deadline: what the host needed is not added to the step.
        if (wait := done - self._clock()) > 0:
            self._sleep(wait)
        return StepResult(tuple(samples))

    def _finish_time(self, batch: Batch) -> float:
        if self._roofline is None:
            return -math.inf
        now = self._clock()
        begin = self._free_at if now - self._free_at < LATE_SECONDS else now
        self._free_at = max(begin, self._free_at) + self._roofline.step_seconds(batch.rows)
        return self._free_at

    def _decode(self, rows: list[Row]) -> list[Sample]:
        """Return the next token of each of these decode rows: `_compute`, all rows at once.

        The device must cost the host nothing, or the front's speed could not be measured on it.
        """
        if not rows:
            return []
        page = self._limits.page_size
        starts = np.array([row.start for row in rows])
        tokens = np.array([row.tokens[0] for row in rows], dtype=np.uint64)
        here = np.array([row.pages[-1] for row in rows], dtype=np.int64)
        before = np.array([r.pages[-1 if r.start % page else -2] for r in rows], dtype=np.int64)
        earlier = self._slots[before * page + (starts - 1) % page]
        hashes = earlier * np.uint64(_BASE) + _mix(tokens + np.uint64(1))
        self._slots[here * page + starts % page] = hashes
        states = _mix(hashes)
        ends = (states % np.uint64(END_ONE_IN) == 0).tolist()
        choices = (states % np.uint64(len(ALPHABET))).tolist()
        end = Sample(self._eos)
        return [
            end if ends_here else _PLAIN[choice]
            for ends_here, choice in zip(ends, choices, strict=True)
        ]

    def _compute(self, row: Row) -> Sample | None:
        page, at = self._limits.page_size, row.start
        before = int(self._slots[self._slot(row, at - 1)]) if at else 0
        if len(row.tokens) == 1:
            # Decode, the usual row: numpy would cost ten times the arithmetic.
            last = next_hash(before, int(row.tokens[0]))
            self._slots[self._slot(row, at)] = last
        else:
            hashes = chain_hash(before, row.tokens)
            positions = np.arange(at, at + len(row.tokens))
            self._slots[row.pages[positions // page] * page + positions % page] = hashes
            last = int(hashes[-1])
        if row.sampling is None:
            return None
        if row.generated_ids is None or row.prompt_ids is None:
            return draw(last, row.sampling, self._eos)
        if row.sampling.mask is not None:
            allowed = row.sampling.mask.allowed(row.generated_ids)
            return draw_allowed(last, row.sampling, self._eos, allowed)
        history = row.prompt_ids.tolist(), row.generated_ids.tolist()
        return draw(last, row.sampling, self._eos, *history)

    def _slot(self, row: Row, position: int) -> int:
        page = self._limits.page_size
        return int(row.pages[position // page]) * page + position % page


def _is_plain_decode(row: Row) -> bool:
    return (
        row.sampling is not None
        and row.sampling.is_plain
        and row.start > 0
        and len(row.tokens) == 1
    )


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


def next_hash(before: int, token: int) -> int:
    """Return the hash of a prefix with one more token; `chain_hash` of a single one."""
    return (before * _BASE + _mix_int(token + 1)) & _MASK


def draw(
    prefix_hash: int,
    sampling: Sampling,
    eos_id: int,
    prompt: Sequence[int] = (),
    generated: Sequence[int] = (),
) -> Sample:
    """Return the made-up model's next token: all of its alphabet is equally likely.

    The prefix decides the order of the alphabet, so greedy text ignores the seed; otherwise prefix
    and seed pick among the `top_k` or `top_p` first. Histories matter to penalties only.
    """
    size = len(ALPHABET)
    kept = min(sampling.top_k or size, max(1, math.ceil(sampling.top_p * size)))
    greedy = sampling.temperature == 0 or kept == 1
    state = _mix_int(prefix_hash ^ (0 if greedy else _mix_int(sampling.seed & _MASK)))
    first = _mix_int(prefix_hash) % size
    if sampling.logit_bias or needs_history(sampling):
        weights = _weights(sampling, eos_id, prompt, generated)
        token = _pick(weights, (state + 0.5) / (_MASK + 1))
        return _sample(token, sampling, weights, first)
    if state % END_ONE_IN == 0 and eos_id not in sampling.forbidden:
        return _sample(eos_id, sampling, None, first)
    offset = 0 if greedy else (state // END_ONE_IN) % kept
    for step in range(size):
        token = int(ALPHABET[(first + offset + step) % size])
        if token not in sampling.forbidden:
            break
    return _sample(token, sampling, None, first)


def draw_allowed(
    prefix_hash: int, sampling: Sampling, eos_id: int, allowed: NDArray[np.bool_]
) -> Sample:
    """Return a token the grammar allows, the end as soon as it does; penalties and bias are ignored.

    All that is allowed is equally likely, but for what closes a string, a list or an object.
    """
    state = _mix_int(prefix_hash ^ (0 if sampling.temperature == 0 else sampling.seed & _MASK))
    if allowed[eos_id]:
        return _sample(eos_id, sampling, {eos_id: 1.0}, 0)
    spoken = np.flatnonzero(allowed[: len(SPOKEN)] & SPOKEN)
    choices = spoken if len(spoken) else np.flatnonzero(allowed)
    closers = np.intersect1d(choices, CLOSERS)
    if len(closers) and state % CLOSE_ONE_IN == 0:
        choices = closers
    token = int(choices[state // CLOSE_ONE_IN % len(choices)])
    return _sample(token, sampling, dict.fromkeys(choices.tolist(), 1.0), 0)


def _weights(
    sampling: Sampling, eos_id: int, prompt: Sequence[int], generated: Sequence[int]
) -> dict[int, float]:
    """Return token → weight with bias and penalties applied to the flat model's logits.

    A token outside the alphabet has a low but finite logit, as in a real model: bias can force it.
    """
    logits = _flat_logits(eos_id)
    for token, _ in sampling.logit_bias:
        logits.setdefault(token, OUTSIDE_LOGIT)
    for token in {*prompt, *generated} & logits.keys():
        # Flat logits are negative, so the penalty multiplies (Keskar et al. 2019).
        logits[token] *= sampling.repetition_penalty
    for token, count in Counter(generated).items():
        if token in logits:
            logits[token] -= sampling.presence_penalty + count * sampling.frequency_penalty
    for token, bias in sampling.logit_bias:
        logits[token] += bias
    return {t: math.exp(value) for t, value in logits.items() if t not in sampling.forbidden}


def _pick(weights: dict[int, float], share: float) -> int:
    """Return the token at this share (0 to 1) of the cumulated weights."""
    target = share * sum(weights.values())
    token = 0
    for token, weight in weights.items():  # noqa: B007 - the last one, when rounding leaves a rest
        target -= weight
        if target < 0:
            break
    return token


def _flat_logits(eos_id: int) -> dict[int, float]:
    counts = Counter(ALPHABET.tolist())
    rest = 1 - 1 / END_ONE_IN
    logits = {t: math.log(rest * count / len(ALPHABET)) for t, count in counts.items()}
    return {**logits, eos_id: math.log(1 / END_ONE_IN)}


def _sample(token: int, sampling: Sampling, weights: dict[int, float] | None, first: int) -> Sample:
    if not sampling.logprobs:
        return Sample(token)
    if weights is None:
        # The end token's id is known only when it was drawn; it is the least likely one.
        logprobs = _flat_logits(token if token not in ALPHABET else -1)
        logprobs.pop(-1, None)
    else:
        total = sum(weights.values())
        logprobs = {t: math.log(weight / total) for t, weight in weights.items() if weight}
    order = {int(t): rank for rank, t in enumerate(np.roll(ALPHABET, -first)[::-1])}
    ranked = sorted(logprobs.items(), key=lambda pair: (-pair[1], -order.get(pair[0], -1)))
    return Sample(token, logprobs.get(token), tuple(ranked[: sampling.logprobs]))


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
