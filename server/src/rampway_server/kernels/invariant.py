"""The torch references with an attention whose every bit is independent of batch and chunk.

It knows the same shapes as `reference.py`. Used by `--deterministic` on CPU, where torch's own
attention picks its block sizes by the number of queries.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from rampway_server.kernels.reference import (
    paged_decode_attention,
    rms_norm,
    rope_kv_write,
    sample,
    silu_mul,
)

__all__ = [
    "NAME",
    "paged_decode_attention",
    "prefix_extend_attention",
    "rms_norm",
    "rope_kv_write",
    "sample",
    "silu_mul",
]

NAME = "invariant"

_QUERIES = 16  # a tile; every product has this shape, whatever the step holds
_KEYS = 128  # a step of the sum over keys; steps begin at position 0


def prefix_extend_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    block_table: Tensor,
    starts: Tensor,
    offsets: Tensor,
    scale: float,
) -> Tensor:
    """Return what `reference.prefix_extend_attention` returns, one query alone of all others.

    Products are fp32 and of one fixed shape; a query's sum runs over its keys in fixed steps, and
    steps of only masked keys change nothing. About 3 times the time of the reference.
    """
    _, q_heads, head_dim = q.shape
    page, kv_heads = k_pool.shape[1:3]
    runs, rows, seen = _tiles(starts, offsets)
    group = q_heads // kv_heads
    shape = (len(runs), _QUERIES, kv_heads, group, head_dim)
    tiles = q[rows].view(shape).permute(0, 2, 1, 3, 4).reshape(-1, _QUERIES * group, head_dim)
    tiles = tiles.float().mul_(scale)
    # [tiles * Hk, queries * group]: the last key that each product row may see
    limit = seen.repeat_interleave(group, 1).repeat_interleave(kv_heads, 0)
    maximum = torch.full_like(limit, float("-inf"), dtype=torch.float32)
    total = torch.zeros_like(maximum)
    acc = torch.zeros_like(tiles)
    for first in range(0, int(seen.max()) + 1, _KEYS):
        key = torch.arange(first, first + _KEYS, device=q.device)
        # Keys past the table are masked below; any page stands in for theirs.
        column = (key // page).clamp_(max=block_table.shape[1] - 1)
        slots = (block_table[runs][:, column].long() * page + key % page).view(-1)
        k, v = (_heads_first(pool, slots, len(runs)) for pool in (k_pool, v_pool))
        scores = torch.bmm(tiles, k.transpose(1, 2))
        scores.masked_fill_(key > limit.unsqueeze(-1), float("-inf"))
        higher = torch.maximum(maximum, scores.amax(-1))
        weights = scores.sub_(higher.unsqueeze(-1)).exp_()
        shrink = (maximum - higher).exp_()
        acc.mul_(shrink.unsqueeze(-1)).add_(torch.bmm(weights, v))
        total = total.mul_(shrink).add_(weights.sum(-1))
        maximum = higher
    out = (acc / total.unsqueeze(-1)).view(len(runs), kv_heads, _QUERIES, group, head_dim)
    flat = out.permute(0, 2, 1, 3, 4).reshape(-1, q_heads, head_dim).to(q.dtype)
    result = torch.empty_like(q)
    # Padding rows repeat their tile's first query, so writing them writes the same bits again.
    result[rows.view(-1)] = flat
    return result


def _tiles(starts: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (run of each tile, rows of `q` [tiles, 16], last visible key of each row)."""
    runs: list[int] = []
    firsts: list[Tensor] = []
    seen: list[Tensor] = []
    lane = torch.arange(_QUERIES)
    spans = zip(starts.tolist(), pairwise(offsets.tolist()), strict=True)
    for run, (start, (begin, end)) in enumerate(spans):
        for first in range(begin, end, _QUERIES):
            rows = torch.where(first + lane < end, first + lane, first)
            runs.append(run)
            firsts.append(rows)
            seen.append(start + rows - begin)
    device = starts.device
    return (
        torch.tensor(runs, device=device),
        torch.stack(firsts).to(device),
        torch.stack(seen).to(device),
    )


def _heads_first(pool: Tensor, slots: Tensor, tiles: int) -> Tensor:
    """Return fp32 `[tiles * Hk, keys, D]` of the pool's rows at `slots`."""
    kv_heads, head_dim = pool.shape[2:]
    rows = pool.view(-1, kv_heads, head_dim).index_select(0, slots)
    split = rows.view(tiles, -1, kv_heads, head_dim).transpose(1, 2)
    return split.float().reshape(tiles * kv_heads, -1, head_dim)
