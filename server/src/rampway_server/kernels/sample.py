"""Draws one token a row: penalties, temperature, top-k, top-p and min-p over a whole vocabulary.

It knows logits and `SamplingRules`; see `reference.sample` for the specification. A row is cut
into fixed chunks, whose maxima and masses one pass finds; most rows then read one chunk more. A
row with top-k or top-p looks for the logit where what is kept ends by searching the 2^32 ordered
bit patterns in quarters, 16 passes at most, and never sorts. No step looks at another row.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import sample_config

if TYPE_CHECKING:
    from rampway_server.kernels.contract import LogitEdits, SamplingRules

__all__ = ["sample"]


@triton.jit
def _clean(x):
    """Return `x` without what cannot be compared: no NaN, no +inf, one zero."""
    # NaN compares as nothing: no order holds for it.
    x = tl.where(x <= 1e30, x, tl.where(x > 1e30, 1e30, float("-inf")))
    return tl.where(x == 0.0, 0.0, x)


@triton.jit
def _key(x):
    """Return int32 keys that are ordered as the fp32 values are."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _weight(x, peak, temperature, min_p):
    """Return the probability of logits relative to the most likely token, 0 below `min_p`."""
    weight = tl.exp((x - peak) / temperature)
    return tl.where(weight >= min_p, weight, 0.0)


@triton.jit
def _chunk(row_ptr, chunk, vocab, CHUNK: tl.constexpr):
    """Return the token ids and clean logits of one chunk."""
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    return token, _clean(tl.load(row_ptr + token, mask=token < vocab, other=float("-inf")))


@triton.jit
def _at_least(
    row_ptr,
    vocab,
    chunks,
    peak,
    temperature,
    min_p,
    first,
    second,
    third,
    MASS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Return how many logits, or how much mass, have a key of at least each of three keys."""
    one = tl.zeros([], tl.float64)
    two = tl.zeros([], tl.float64)
    three = tl.zeros([], tl.float64)
    for chunk in range(chunks):
        _, x = _chunk(row_ptr, chunk, vocab, CHUNK)
        key = _key(x)
        value = tl.full([CHUNK], 1.0, tl.float32)
        if MASS:
            value = _weight(x, peak, temperature, min_p)
        one += tl.sum(tl.where(key >= first, value, 0.0), axis=0).to(tl.float64)
        two += tl.sum(tl.where(key >= second, value, 0.0), axis=0).to(tl.float64)
        three += tl.sum(tl.where(key >= third, value, 0.0), axis=0).to(tl.float64)
    return one, two, three


@triton.jit
def _largest_key(
    row_ptr,
    vocab,
    chunks,
    peak,
    temperature,
    min_p,
    low,
    high,
    wanted,
    MASS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Return (key, what lies above it): the largest key in `low .. high` that reaches `wanted`.

    `low` is taken to reach it, so that rounding cannot leave nothing.
    """
    low = low.to(tl.int64)
    high = high.to(tl.int64)
    while low < high:
        step = (high - low + 3) // 4
        a = low + step
        b = tl.minimum(a + step, high)
        c = tl.minimum(b + step, high)
        one, two, three = _at_least(
            row_ptr, vocab, chunks, peak, temperature, min_p,
            a.to(tl.int32), b.to(tl.int32), c.to(tl.int32), MASS, CHUNK,
        )  # fmt: skip
        high = tl.where(one < wanted, a - 1, tl.where(two < wanted, b - 1, high))
        high = tl.where((two >= wanted) & (three < wanted), c - 1, high)
        low = tl.where(one < wanted, low, tl.where(two < wanted, a, b))
        low = tl.where(three >= wanted, c, low)
    key = low.to(tl.int32)
    above, _, _ = _at_least(
        row_ptr, vocab, chunks, peak, temperature, min_p, key + 1, key + 1, key + 1, MASS, CHUNK
    )
    return key, above


@triton.jit
def _edit_kernel(
    logits_ptr,
    penalties_ptr,
    offsets_ptr,
    tokens_ptr,
    counts_ptr,
    added_ptr,
    stride,
    EDITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.load(offsets_ptr + row) + tl.program_id(1) * EDITS + tl.arange(0, EDITS)
    live = at < tl.load(offsets_ptr + row + 1)
    repetition = tl.load(penalties_ptr + 3 * row)
    presence = tl.load(penalties_ptr + 3 * row + 1)
    frequency = tl.load(penalties_ptr + 3 * row + 2)
    place = logits_ptr + row * stride + tl.load(tokens_ptr + at, mask=live, other=0)
    count = tl.load(counts_ptr + at, mask=live, other=-1)
    x = _clean(tl.load(place, mask=live, other=0.0))
    x = tl.where(count >= 0, tl.where(x > 0.0, x / repetition, x * repetition), x)
    x = tl.where(count > 0, x - presence - frequency * count.to(tl.float32), x)
    tl.store(place, x + tl.load(added_ptr + at, mask=live, other=0.0), mask=live)


@triton.jit(do_not_specialize=["vocab", "chunks"])
def _summary_kernel(
    logits_ptr,
    temperature_ptr,
    maximum_ptr,
    token_ptr,
    mass_ptr,
    stride,
    vocab,
    chunks,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    token, x = _chunk(logits_ptr + row * stride, chunk, vocab, CHUNK)
    temperature = tl.load(temperature_ptr + row)
    temperature = tl.where(temperature > 0.0, temperature, 1.0)
    maximum = tl.max(x, axis=0)
    # A chunk without a possible token would subtract infinity from infinity.
    against = tl.where(maximum == float("-inf"), 0.0, maximum)
    out = row * chunks + chunk
    tl.store(maximum_ptr + out, maximum)
    tl.store(token_ptr + out, tl.min(tl.where(x == maximum, token, vocab), axis=0))
    tl.store(mass_ptr + out, tl.sum(_weight(x, against, temperature, 0.0), axis=0))


@triton.jit(do_not_specialize=["vocab", "chunks"])
def _pick_kernel(
    logits_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    number_ptr,
    maximum_ptr,
    token_ptr,
    mass_ptr,
    out_ptr,
    stride,
    vocab,
    chunks,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride
    index = tl.arange(0, CHUNKS)
    here = index < chunks
    maxima = tl.load(maximum_ptr + row * chunks + index, mask=here, other=float("-inf"))
    peak = tl.max(maxima, axis=0)
    temperature = tl.load(temperature_ptr + row)
    if (temperature <= 0.0) | (peak == float("-inf")):
        tokens = tl.load(token_ptr + row * chunks + index, mask=here, other=0)
        first = tl.min(tl.where(here & (maxima == peak), tokens, vocab), axis=0)
        tl.store(out_ptr + row, first.to(tl.int64))
        return
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    min_p = tl.load(min_p_ptr + row)

    # Kept are keys above `lowest`, and of those equal to it the first `allowed` by token id.
    lowest = _key(tl.full([], float("-inf"), tl.float32))
    highest = _key(peak)
    floor = lowest
    allowed = vocab
    limited = (top_k > 0) & (top_k < vocab)
    if limited:
        lowest, above = _largest_key(
            row_ptr, vocab, chunks, peak, temperature, min_p,
            lowest, highest, top_k.to(tl.float64), MASS=False, CHUNK=CHUNK,
        )  # fmt: skip
        allowed = top_k - above.to(tl.int32)
    if top_p < 1.0:
        above, _, _ = _at_least(
            row_ptr, vocab, chunks, peak, temperature, min_p,
            lowest + 1, lowest + 1, lowest + 1, MASS=True, CHUNK=CHUNK,
        )  # fmt: skip
        floor = lowest
        edge = _weight(_value(lowest), peak, temperature, min_p).to(tl.float64)
        limit = top_p.to(tl.float64) * (above + edge * allowed.to(tl.float64))
        lowest, above = _largest_key(
            row_ptr,
            vocab,
            chunks,
            peak,
            temperature,
            min_p,
            lowest,
            highest,
            limit,
            MASS=True,
            CHUNK=CHUNK,
        )
        edge = _weight(_value(lowest), peak, temperature, min_p).to(tl.float64)
        # The token that passes the limit is kept, so that at least one is.
        needed = tl.where(
            edge > 0.0, tl.ceil((limit - above) / tl.where(edge > 0.0, edge, 1.0)), 1.0
        )
        needed = tl.maximum(1.0, tl.minimum(needed, vocab.to(tl.float64))).to(tl.int32)
        allowed = tl.where(lowest == floor, tl.minimum(needed, allowed), needed)

    scale = tl.where(here & (maxima > float("-inf")), tl.exp((maxima - peak) / temperature), 0.0)
    mass = tl.load(mass_ptr + row * chunks + index, mask=here, other=0.0)
    masses = mass.to(tl.float64) * scale
    ties = tl.zeros([CHUNKS], tl.int32)
    if limited | (top_p < 1.0) | (min_p > 0.0):
        seen = tl.zeros([], tl.int32)
        for chunk in range(chunks):
            _, x = _chunk(row_ptr, chunk, vocab, CHUNK)
            weight = _kept(x, lowest, allowed, seen, peak, temperature, min_p)
            masses = tl.where(index == chunk, tl.sum(weight, axis=0).to(tl.float64), masses)
            ties = tl.where(index == chunk, seen, ties)
            seen += tl.sum((_key(x) == lowest).to(tl.int32), axis=0)

    target = tl.load(number_ptr + row) * tl.sum(masses, axis=0)
    passed = tl.cumsum(masses, axis=0) <= target
    # Rounding may lead past the last chunk that holds anything.
    last = tl.max(tl.where(masses > 0.0, index, 0), axis=0)
    chunk = tl.minimum(tl.sum((passed & here).to(tl.int32), axis=0), last)
    before = tl.sum(tl.where(index < chunk, masses, 0.0), axis=0)
    seen = tl.sum(tl.where(index == chunk, ties, 0), axis=0)
    token, x = _chunk(row_ptr, chunk, vocab, CHUNK)
    weight = _kept(x, lowest, allowed, seen, peak, temperature, min_p)
    reached = tl.cumsum(weight, axis=0) > (target - before).to(tl.float32)
    drawn = tl.min(tl.where(reached & (weight > 0.0), token, vocab), axis=0)
    final = tl.max(tl.where(weight > 0.0, token, 0), axis=0)
    tl.store(out_ptr + row, tl.where(drawn < vocab, drawn, final).to(tl.int64))


@triton.jit
def _value(key):
    """Return the fp32 value of a key."""
    return tl.where(key < 0, key ^ 0x7FFFFFFF, key).to(tl.float32, bitcast=True)


@triton.jit
def _kept(x, lowest, allowed, seen, peak, temperature, min_p):
    """Return weights, 0 for tokens that are not kept; `seen` equal keys lie in earlier chunks."""
    key = _key(x)
    equal = key == lowest
    rank = seen + tl.cumsum(equal.to(tl.int32), axis=0)
    keep = (key > lowest) | (equal & (rank <= allowed))
    return tl.where(keep, _weight(x, peak, temperature, min_p), 0.0)


def sample(logits: Tensor, rules: SamplingRules) -> Tensor:
    """Return one token a row; specification, shapes and cost: `reference.sample`.

    Needs contiguous columns. Sums are fp32 inside a chunk of 4,096 tokens and fp64 across chunks,
    so a token whose share ends within about 1e-6 of the row's number may differ from the reference.
    """
    rows, vocab = logits.shape
    if logits.stride(-1) != 1 or logits.dtype != torch.float32 or rules.number.shape != (rows,):
        raise ValueError(
            f"sample needs fp32 logits in contiguous columns and one number a row: got "
            f"{tuple(logits.shape)} {logits.dtype}, {tuple(rules.number.shape)} numbers"
        )
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows == 0:
        return out
    config = sample_config(vocab)
    if rules.edits is not None:
        _edit(logits, rules.edits, config.edits)
    chunks = triton.cdiv(vocab, config.chunk)
    maxima = torch.empty((rows, chunks), dtype=torch.float32, device=logits.device)
    tokens = torch.empty((rows, chunks), dtype=torch.int32, device=logits.device)
    masses = torch.empty_like(maxima)
    _summary_kernel[(rows, chunks)](
        logits,
        rules.temperature,
        maxima,
        tokens,
        masses,
        logits.stride(0),
        vocab,
        chunks,
        CHUNK=config.chunk,
        num_warps=config.num_warps,
    )
    _pick_kernel[(rows,)](
        logits,
        rules.temperature,
        rules.top_k,
        rules.top_p,
        rules.min_p,
        rules.number,
        maxima,
        tokens,
        masses,
        out,
        logits.stride(0),
        vocab,
        chunks,
        CHUNK=config.chunk,
        CHUNKS=config.chunks,
        num_warps=config.num_warps,
    )
    return out


def _edit(logits: Tensor, edits: LogitEdits, block: int) -> None:
    if edits.longest == 0:
        return
    _edit_kernel[(logits.shape[0], triton.cdiv(edits.longest, block))](
        logits,
        edits.penalties,
        edits.offsets,
        edits.tokens,
        edits.counts,
        edits.added,
        logits.stride(0),
        EDITS=block,
        num_warps=2,
    )
