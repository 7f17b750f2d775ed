"""`sample` in plain torch: the specification of the Triton kernel and what a CPU draws with.

It knows logits and `SamplingRules`, no batch and no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rampway_server.kernels.contract import LogitEdits, SamplingRules

__all__ = ["sample"]

_LARGEST = 1e30  # stands for infinity: differences of two are still numbers
_HEAD = 256  # most likely tokens looked at before a whole vocabulary is sorted


def sample(logits: Tensor, rules: SamplingRules) -> Tensor:
    """Return one token a row, drawn by the row's own rules and number.

    Args:
        logits: `[N, V]` fp32, changed in place; NaN is impossible, +inf the largest number.
        rules: see `SamplingRules`. In this order: penalties for tokens seen (repetition divides
            positive and multiplies negative logits, presence counts once, frequency each time),
            `added`, temperature, min-p, top-k, top-p on the mass that is left.
    Returns: `[N]` int64. Greedy rows: the highest logit, lowest token on a tie. Others: in token
        order, the first kept token at which the kept mass passes `number` of the whole. Of tokens
        that tie where top-k or top-p end, those with low ids are kept. Token 0 where every logit
        is -inf.
    Numerics: weights fp32, sums fp64. A row's result does not depend on other rows.
    Cost: V * 4 bytes moved a row, and 4 bytes a logit of one chunk; with top-k or top-p up to 16
        passes more over a row, which a GPU's cache holds.
    Source: Fan et al. 2018, arXiv:1805.04833 (top-k); Holtzman et al. 2019, arXiv:1904.09751
        (top-p); Nguyen et al. 2024, arXiv:2407.01082 (min-p); Keskar et al. 2019,
        arXiv:1909.05858 (repetition penalty).
    """
    logits.nan_to_num_(nan=float("-inf"), posinf=_LARGEST, neginf=float("-inf"))
    if rules.edits is not None:
        _edit(logits, rules.edits)
    tokens = logits.argmax(dim=-1)
    columns = (rules.temperature, rules.top_k, rules.top_p, rules.min_p, rules.number)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for at, (temperature, top_k, top_p, min_p, number) in enumerate(rows):
        if temperature > 0:
            tokens[at] = _draw(logits[at], temperature, top_k, top_p, min_p, number)
    return tokens


def _edit(logits: Tensor, edits: LogitEdits) -> None:
    bounds = edits.offsets.tolist()
    for at, (repetition, presence, frequency) in enumerate(edits.penalties.tolist()):
        span = slice(bounds[at], bounds[at + 1])
        tokens, counts = edits.tokens[span].long(), edits.counts[span]
        x = logits[at, tokens]
        x = torch.where(counts >= 0, torch.where(x > 0, x / repetition, x * repetition), x)
        x = torch.where(counts > 0, x - presence - frequency * counts, x)
        logits[at, tokens] = x + edits.added[span]


def _draw(
    logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float, number: float
) -> int:
    peak = float(logits.max())
    if peak == float("-inf"):  # everything is forbidden: the draw must still end
        return 0
    weights = logits.sub(peak).div_(temperature).exp_()
    if min_p > 0:
        weights[weights < min_p] = 0.0
    if top_p < 1.0 or 0 < top_k < len(logits):
        _cut(weights, logits, top_k, top_p)
    total = weights.double().cumsum(0)
    at = int(torch.searchsorted(total, number * float(total[-1]), right=True))
    # Rounding may land past the last weight, or on a weight of zero at the very end.
    return int(weights.nonzero()[-1]) if at >= len(weights) else at


def _cut(weights: Tensor, logits: Tensor, top_k: int, top_p: float) -> None:
    """Set to zero what top-k and top-p do not keep."""
    lowest, allowed = _edge(weights, logits, top_k, top_p)
    dropped = logits < lowest
    dropped[(logits == lowest).nonzero().view(-1)[allowed:]] = True
    weights.masked_fill_(dropped, 0.0)


def _edge(weights: Tensor, logits: Tensor, top_k: int, top_p: float) -> tuple[float, int]:
    """Return the lowest kept logit and how many tokens that have exactly this logit are kept."""
    size = len(logits)
    keep = min(top_k, size) if top_k > 0 else size
    head = keep if top_k > 0 else min(_HEAD, size)
    ordered, tokens = logits.topk(head)
    count = head
    if top_p < 1.0:
        mass = weights.double().sum() if keep == size else weights[tokens].double().sum()
        limit = top_p * float(mass)
        total = weights[tokens].double().cumsum(0)
        if head < keep and float(total[-1]) < limit:
            ordered, tokens = logits.sort(descending=True)
            total = weights[tokens].double().cumsum(0)
        # The token that passes the limit is kept, so that at least one is.
        count = min(int((total < limit).sum()) + 1, len(ordered))
    lowest = float(ordered[count - 1])
    return lowest, count - int((logits > lowest).sum())
