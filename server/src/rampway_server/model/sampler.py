"""Draws one token a row: turns rows into the tensors of the sampling kernel and back into samples.

It knows logits and `Sampling`, neither sequences nor the model. Equal logits, fields, seed and
position draw the same token, whatever else is in the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rampway_server.engine.batch import Sample
from rampway_server.kernels.contract import LogitEdits, SamplingRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from rampway_server.engine.batch import Row, Sampling
    from rampway_server.kernels.contract import Kernels

__all__ = ["draw", "uniform"]

_MASK = (1 << 64) - 1
_LARGEST = 1e30  # stands for infinity, as in the kernel
_NO_EDITS = (np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))


def draw(logits: Tensor, rows: Sequence[Row], kernels: Kernels) -> list[Sample]:
    """Return one sample for each row of `logits` `[N, vocabulary]` fp32, which is changed in place.

    Every row must have `sampling`. Log probabilities are those of the model: before penalties,
    temperature and filters.
    """
    settings = [_settings(row) for row in rows]
    plain = [log_probs(logits[at], s.logprobs) for at, s in enumerate(settings)]
    for at, (row, sampling) in enumerate(zip(rows, settings, strict=True)):
        _restrict(logits[at], row, sampling)
    tokens = kernels.sample(logits, _rules(rows, settings, logits.device)).tolist()
    return [_sample(token, known) for token, known in zip(tokens, plain, strict=True)]


def uniform(seed: int, position: int) -> float:
    """Return a number in [0, 1) that depends on both arguments only (SplitMix64, twice)."""
    mixed = _split_mix(_split_mix(seed & _MASK) ^ (position & _MASK))
    return (mixed >> 11) * 2.0**-53


def log_probs(logits: Tensor, count: int) -> tuple[Tensor, list[tuple[int, float]]] | None:
    """Return log probabilities and the `count` largest with their tokens; None where count is 0."""
    if count == 0:
        return None
    # Broken weights must not show as the most likely: not a number is impossible.
    clean = logits.nan_to_num(nan=float("-inf"), posinf=_LARGEST, neginf=float("-inf"))
    known = torch.log_softmax(clean, dim=-1)
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


def _restrict(logits: Tensor, row: Row, sampling: Sampling) -> None:
    """Forbid one row in place what its grammar does; no penalty or bias brings it back."""
    if sampling.mask is None or row.generated_ids is None:
        return
    allowed = torch.from_numpy(sampling.mask.allowed(row.generated_ids)).to(logits.device)
    size = min(len(allowed), len(logits))  # either may be padded
    logits[:size].masked_fill_(~allowed[:size], float("-inf"))
    logits[size:] = float("-inf")


def _rules(
    rows: Sequence[Row], settings: Sequence[Sampling], device: torch.device
) -> SamplingRules:
    """Return the rules of all rows on `device`."""

    def column(values: Iterable[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(values), dtype=dtype).to(device)

    numbers = (
        uniform(s.seed, row.start + len(row.tokens)) if s.temperature > 0 else 0.0
        for row, s in zip(rows, settings, strict=True)
    )
    return SamplingRules(
        temperature=column((s.temperature for s in settings), torch.float32),
        top_k=column((s.top_k for s in settings), torch.int32),
        top_p=column((s.top_p for s in settings), torch.float32),
        min_p=column((s.min_p for s in settings), torch.float32),
        number=column(numbers, torch.float64),
        edits=_edits(rows, settings, device),
    )


def _edits(
    rows: Sequence[Row], settings: Sequence[Sampling], device: torch.device
) -> LogitEdits | None:
    """Return the edits of all rows; None where no row has one."""
    each = [_row_edits(row, sampling) for row, sampling in zip(rows, settings, strict=True)]
    sizes = [len(tokens) for tokens, _, _ in each]
    if not any(sizes):
        return None

    def put(parts: Iterable[NDArray[np.generic]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(parts))).to(device)

    penalties = [(s.repetition_penalty, s.presence_penalty, s.frequency_penalty) for s in settings]
    return LogitEdits(
        penalties=torch.tensor(penalties, dtype=torch.float32).to(device),
        offsets=torch.tensor(np.cumsum([0, *sizes]), dtype=torch.int32).to(device),
        tokens=put(tokens for tokens, _, _ in each),
        counts=put(counts for _, counts, _ in each),
        added=put(added for _, _, added in each),
        longest=max(sizes),
    )


def _row_edits(
    row: Row, sampling: Sampling
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return a row's edited tokens, how often each was drawn (-1: never seen), and what is added."""
    seen = row.prompt_ids is not None or row.generated_ids is not None
    if not (seen or sampling.logit_bias or sampling.forbidden):
        return _NO_EDITS  # most rows of most steps: sorting nothing would take 20 µs each
    prompt, drawn = (
        np.asarray([] if ids is None else ids, np.int32)
        for ids in (row.prompt_ids, row.generated_ids)
    )
    biased = np.array([token for token, _ in sampling.logit_bias], np.int32)
    forbidden = np.array(sampling.forbidden, np.int32)
    parts = (drawn, prompt, biased, forbidden)
    tokens, where = np.unique(np.concatenate(parts), return_inverse=True)
    of_drawn, of_prompt, of_bias, of_forbidden = np.split(
        where, np.cumsum([len(part) for part in parts])[:-1]
    )
    counts = np.full(len(tokens), -1, np.int32)
    counts[of_prompt] = 0
    counts[of_drawn] = 0
    np.add.at(counts, of_drawn, 1)
    added = np.zeros(len(tokens), np.float32)
    np.add.at(added, of_bias, np.array([value for _, value in sampling.logit_bias], np.float32))
    added[of_forbidden] = -np.inf
    return tokens, counts, added


def _split_mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
