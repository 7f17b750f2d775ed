"""Draws one token a row from logits, by the row's own rules and a counter-based random number.

It knows logits and `Sampling`, neither sequences nor the model. Equal logits, fields, seed and
position draw the same token, whatever else is in the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rampway_server.engine.batch import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.engine.batch import Row, Sampling

__all__ = ["draw", "uniform"]

_MASK = (1 << 64) - 1
_LARGEST = 1e30  # stands for infinity: differences of two are still numbers
_HEAD = 256  # most likely tokens looked at before a whole vocabulary is sorted


def draw(logits: Tensor, rows: Sequence[Row]) -> list[Sample]:
    """Return one sample for each row of `logits` `[N, vocabulary]` fp32, which is changed in place.

    Every row must have `sampling`. Log probabilities are those of the model: before penalties,
    temperature and filters.
    """
    settings = [_settings(row) for row in rows]
    # Broken weights must not draw nonsense silently as the largest: not a number is impossible.
    logits.nan_to_num_(nan=float("-inf"), posinf=_LARGEST, neginf=float("-inf"))
    plain = [log_probs(logits[at], s.logprobs) for at, s in enumerate(settings)]
    for at, (row, sampling) in enumerate(zip(rows, settings, strict=True)):
        _adjust(logits[at], row, sampling)
    tokens = logits.argmax(dim=-1).tolist()
    for at, (row, sampling) in enumerate(zip(rows, settings, strict=True)):
        if sampling.temperature > 0:
            position = row.start + len(row.tokens)
            tokens[at] = _random_token(logits[at], sampling, uniform(sampling.seed, position))
    return [_sample(token, known) for token, known in zip(tokens, plain, strict=True)]


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that depends on both arguments only (SplitMix64, twice)."""
    mixed = _split_mix(_split_mix(seed & _MASK) ^ (position & _MASK))
    return (mixed >> 11) * 2.0**-53


def log_probs(logits: Tensor, count: int) -> tuple[Tensor, list[tuple[int, float]]] | None:
    """Return log probabilities and the `count` largest with their tokens; None where count is 0."""
    if count == 0:
        return None
    known = torch.log_softmax(logits, dim=-1)
    values, tokens = known.topk(min(count, known.shape[-1]))
    return known, list(zip(tokens.tolist(), values.tolist(), strict=True))


def _sample(token: int, known: tuple[Tensor, list[tuple[int, float]]] | None) -> Sample:
    if known is None:
        return Sample(token)
    return Sample(token, float(known[0][token]), tuple(known[1]))


def _settings(row: Row) -> Sampling:
    if row.sampling is None:
        raise ValueError("row cannot be drawn: got no sampling, need one")
    return row.sampling


def _adjust(logits: Tensor, row: Row, sampling: Sampling) -> None:
    """Apply penalties, biases, prohibitions and the grammar to one row in place."""
    device = logits.device
    if sampling.repetition_penalty != 1.0:
        seen = torch.unique(_ids(row.prompt_ids, row.generated_ids, device=device))
        before = logits[seen]
        penalty = sampling.repetition_penalty
        logits[seen] = torch.where(before > 0, before / penalty, before * penalty)
    if sampling.presence_penalty or sampling.frequency_penalty:
        seen, counts = torch.unique(_ids(row.generated_ids, device=device), return_counts=True)
        logits[seen] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    if sampling.logit_bias:
        tokens, added = zip(*sampling.logit_bias, strict=True)
        at = torch.tensor(tokens, dtype=torch.int64, device=device)
        logits.index_add_(0, at, torch.tensor(added, dtype=torch.float32, device=device))
    if sampling.forbidden:
        logits[torch.tensor(sampling.forbidden, device=device)] = float("-inf")
    if sampling.mask is not None and row.generated_ids is not None:
        allowed = torch.from_numpy(sampling.mask.allowed(row.generated_ids)).to(device)
        size = min(len(allowed), len(logits))  # either may be padded
        logits[:size].masked_fill_(~allowed[:size], float("-inf"))
        logits[size:] = float("-inf")


def _ids(*parts: object, device: torch.device) -> Tensor:
    known = [torch.as_tensor(part) for part in parts if part is not None]
    return torch.cat(known).to(device, torch.int64) if known else torch.empty(0, dtype=torch.int64)


def _random_token(logits: Tensor, sampling: Sampling, number: float) -> int:
    """Return the token at which the kept probability mass, in a fixed order, passes `number`."""
    scaled = logits / sampling.temperature
    peak = scaled.max()
    if float(peak) == float("-inf"):  # everything is forbidden: the draw must still end
        return 0
    weights = (scaled - peak).exp_()
    if sampling.min_p > 0:
        weights[weights < sampling.min_p] = 0.0
    if sampling.top_k <= 0 and sampling.top_p >= 1.0:
        return _pick(weights, number)
    ordered, tokens = _most_likely(weights, sampling)
    return int(tokens[_pick(ordered, number)])


def _most_likely(weights: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return the kept weights in falling order and their tokens.

    top-k first, then top-p on what is left of the mass, as vLLM and transformers do.
    """
    size = weights.shape[-1]
    keep = min(sampling.top_k, size) if sampling.top_k > 0 else size
    head = keep if sampling.top_k > 0 else min(_HEAD, size)
    ordered, tokens = weights.topk(head)
    if sampling.top_p >= 1.0:
        return ordered, tokens
    mass = ordered.double().sum() if sampling.top_k > 0 else weights.double().sum()
    limit = sampling.top_p * float(mass)
    total = ordered.double().cumsum(0)
    if head < keep and float(total[-1]) < limit:
        ordered, tokens = weights.sort(descending=True)
        total = ordered.double().cumsum(0)
    # The token that passes the limit is kept, so that at least one is.
    count = int((total < limit).sum()) + 1
    return ordered[:count], tokens[:count]


def _pick(weights: Tensor, number: float) -> int:
    total = weights.double().cumsum(0)
    at = int(torch.searchsorted(total, number * float(total[-1]), right=True))
    # Rounding may land past the last weight, or on a weight of zero at the very end.
    return int(weights.nonzero()[-1]) if at >= weights.shape[-1] else at


def _split_mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
