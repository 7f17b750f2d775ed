"""Every kernel in plain torch: the specification of the Triton kernels and what a CPU runs.

It knows tensors and page tables, no model and no batch. Shapes are named in `contract.py`;
`sample` has a file of its own, `sample_reference.py`.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from rampway_server.kernels.sample_reference import sample

__all__ = [
    "NAME",
    "paged_decode_attention",
    "prefix_extend_attention",
    "rms_norm",
    "rope_kv_write",
    "sample",
    "silu_mul",
]

NAME = "reference"

# Queries of one masked attention call: bounds the mask to this many rows of keys.
_QUERY_BLOCK = 512


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
    """Return `x / rms(x) * weight` over the last dimension.

    Args:
        x: `[T, H]`, fp32/fp16/bf16.
        weight: `[H]`, dtype of `x`.
        residual: `[T, H]`, dtype of `x`; becomes `residual + x` in place, which is then normed.
    Returns: `[T, H]`, dtype of `x`.
    Numerics: the sum `residual + x` is rounded to its dtype; the rest is fp32, rounded once.
    Cost: 2 * T * H * itemsize bytes moved, 4 * T * H * itemsize with a residual.
    Source: Zhang and Sennrich 2019, arXiv:1910.07467.
    """
    if residual is not None:
        x = residual.add_(x)
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def rope_kv_write(
    qkv: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
) -> Tensor:
    """Return the queries rotated by their positions; store rotated keys and values by slot.

    Args:
        qkv: `[T, (Hq + 2 * Hk) * D]`, queries, then keys, then values.
        cos_sin: `[context, D]` fp32; D/2 cosines, then D/2 sines.
        positions: `[T]` int64, rows of `cos_sin`.
        slots: `[T]` int64, distinct but for slots of page 0, which nobody reads.
        k_pool, v_pool: `[pages, page, Hk, D]`, dtype of `qkv`, written in place.
    Returns: `[T, Hq, D]`, dtype of `qkv`, contiguous.
    Numerics: rotation in fp32, rounded once.
    Cost: 2 * T * (Hq + 2 * Hk) * D * itemsize bytes moved, and the rows of `cos_sin`.
    Source: Su et al. 2021, arXiv:2104.09864, halves rotated as in GPT-NeoX.
    """
    kv_heads, head_dim = k_pool.shape[2:]
    heads = qkv.view(qkv.shape[0], -1, head_dim)
    q_heads = heads.shape[1] - 2 * kv_heads
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)
    low, high = heads[:, : q_heads + kv_heads].float().chunk(2, dim=-1)
    turned = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(qkv.dtype)
    k_pool.view(-1, kv_heads, head_dim).index_copy_(0, slots, turned[:, q_heads:])
    v_pool.view(-1, kv_heads, head_dim).index_copy_(0, slots, heads[:, q_heads + kv_heads :])
    return turned[:, :q_heads].contiguous()


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return `silu(gate) * up` for the two halves of `gate_up`.

    Args:
        gate_up: `[T, 2 * I]`, last dimension contiguous; `[:, :I]` is the gate.
    Returns: `[T, I]`, dtype of `gate_up`.
    Numerics: product in fp32, rounded once.  Cost: 3 * T * I * itemsize bytes moved.
    Source: Shazeer 2020, arXiv:2002.05202 (SwiGLU, no bias).
    """
    gate, up = gate_up.float().chunk(2, dim=-1)
    return functional.silu(gate).mul_(up).to(gate_up.dtype)


def paged_decode_attention(
    q: Tensor, k_pool: Tensor, v_pool: Tensor, block_table: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """Return attention of each sequence's one query over its first `lengths` positions.

    Args:
        q: `[N, Hq, D]`; query head h reads key head `h // (Hq // Hk)`.
        k_pool, v_pool: `[pages, page, Hk, D]`, finite everywhere (masked values are multiplied
            by zero).
        block_table: `[N, P]` int32 page ids; entries past a sequence's end may be any valid page.
        lengths: `[N]` int32, 0 to P * page; a length of 0 gives zeros.
        scale: factor of the scores, usually `D ** -0.5`.
    Returns: `[N, Hq, D]`, dtype of `q`.
    Numerics: scores and softmax in fp32, rounded once at the end.
    Cost: 2 * sum(lengths) * Hk * D * itemsize bytes moved.
    Source: Kwon et al. 2023, arXiv:2309.06180; split over keys as in Dao et al. 2023 (Flash-Decoding).
    """
    sequences, _, head_dim = q.shape
    page, kv_heads = k_pool.shape[1:3]
    width = block_table.shape[1] * page
    k = _gathered(k_pool, block_table).view(sequences, width, kv_heads, head_dim)
    v = _gathered(v_pool, block_table).view(sequences, width, kv_heads, head_dim)
    live = torch.arange(width, device=q.device) < lengths.unsqueeze(1)
    # The group of query heads that share a key head is one small query matrix.
    out = functional.scaled_dot_product_attention(
        q.view(sequences, kv_heads, -1, head_dim),
        k.transpose(1, 2),
        v.transpose(1, 2),
        attn_mask=live[:, None, None, :],
        scale=scale,
    )
    # Softmax over nothing is NaN; an empty sequence attends to nothing.
    return torch.where(lengths.view(-1, 1, 1) > 0, out.reshape(q.shape), 0.0)


def prefix_extend_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    block_table: Tensor,
    starts: Tensor,
    offsets: Tensor,
    scale: float,
) -> Tensor:
    """Return causal attention of each sequence's run of queries over its pages.

    Args:
        q: `[T, Hq, D]`, the runs of all sequences one after another.
        k_pool, v_pool: `[pages, page, Hk, D]`; the runs' own keys are stored already.
        block_table: `[N, P]` int32 page ids.
        starts: `[N]` int32, the position of each run's first query.
        offsets: `[N + 1]` int32; run n is `q[offsets[n] : offsets[n + 1]]`.
        scale: factor of the scores.
    Returns: `[T, Hq, D]`, dtype of `q`.
    Numerics: as `paged_decode_attention`.
    Cost: compute bound, 4 * Hq * D * (sum over queries of position + 1) operations.
    Source: Dao 2023, arXiv:2307.08691, with the prefix read through a page table.
    """
    out = torch.empty_like(q)
    page = k_pool.shape[1]
    runs = zip(starts.tolist(), pairwise(offsets.tolist()), block_table, strict=True)
    for start, (first, end), pages in runs:
        length = start + end - first
        used = pages[: -(-length // page)].unsqueeze(0)
        k = _gathered(k_pool, used)[:length].transpose(0, 1)
        v = _gathered(v_pool, used)[:length].transpose(0, 1)
        _extend_one(q[first:end].transpose(0, 1), k, v, start, scale, out[first:end])
    return out


def _extend_one(q: Tensor, k: Tensor, v: Tensor, start: int, scale: float, out: Tensor) -> None:
    """Write one run's attention; heads first: q `[Hq, t, D]`, k and v `[Hk, start + t, D]`."""
    queries = q.shape[1]
    # `is_causal` aligns at the top left: right without a prefix, wrong with one.
    if start == 0:
        out.copy_(_attend(q, k, v, scale, causal=True))
        return
    for first in range(0, queries, _QUERY_BLOCK):
        end = min(first + _QUERY_BLOCK, queries)
        visible = start + end
        rows = torch.arange(start + first, visible, device=q.device).unsqueeze(1)
        mask = torch.arange(visible, device=q.device) <= rows
        part = _attend(q[:, first:end], k[:, :visible], v[:, :visible], scale, mask=mask)
        out[first:end].copy_(part)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return `[t, Hq, D]` from heads-first inputs."""
    out = functional.scaled_dot_product_attention(
        q.unsqueeze(0),
        k.unsqueeze(0),
        v.unsqueeze(0),
        attn_mask=mask,
        is_causal=causal,
        scale=scale,
        enable_gqa=q.shape[0] != k.shape[0],
    )
    return out[0].transpose(0, 1)


def _gathered(pool: Tensor, block_table: Tensor) -> Tensor:
    """Return `[N * P * page, Hk, D]`; index_select is several times faster than indexing."""
    return pool.index_select(0, block_table.reshape(-1)).flatten(0, 1)
