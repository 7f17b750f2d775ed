"""Attention of one query a sequence over a page table, split over keys and merged.

It knows queries, pools and page tables; see `reference.paged_decode_attention`. The query heads
that share a key head are one tile, so every key is read once. Each program reduces a fixed run of
keys to a partial (maximum, sum, weighted values) in fp32; a second kernel merges the partials in
order. Where the runs are cut depends on positions only, so the result does not depend on the batch.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import decode_config, power_of_two

__all__ = ["paged_decode_attention"]


@triton.jit(do_not_specialize=["stride_table", "q_heads", "group", "splits"])
def _decode_split_kernel(
    q_ptr,
    k_pool_ptr,
    v_pool_ptr,
    table_ptr,
    lengths_ptr,
    partial_ptr,
    maximum_ptr,
    sum_ptr,
    scale,
    stride_table,
    stride_slot,
    q_heads,
    group,
    splits,
    PAGE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    SPLIT: tl.constexpr,
    DEPTH: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths_ptr + sequence)
    first = split * SPLIT
    if first >= length:
        return  # the merge reads no partial of a run past the end
    end = tl.minimum(length, first + SPLIT)

    row = tl.arange(0, ROWS)
    deep = tl.arange(0, DEPTH)
    in_group, in_head = row < group, deep < HEAD_DIM
    head = sequence * q_heads + kv_head * group + row
    live = in_group[:, None] & in_head[None, :]
    q = tl.load(q_ptr + head[:, None] * HEAD_DIM + deep[None, :], mask=live, other=0.0)

    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DEPTH], tl.float32)
    for at in range(first, end, KEYS):
        key = at + tl.arange(0, KEYS)
        seen = key < end
        page = tl.load(table_ptr + sequence * stride_table + key // PAGE, mask=seen, other=0)
        slot = (page.to(tl.int64) * PAGE + key % PAGE) * stride_slot + kv_head * HEAD_DIM
        place = slot[:, None] + deep[None, :]
        mask = seen[:, None] & in_head[None, :]
        k = tl.load(k_pool_ptr + place, mask=mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(maximum, tl.max(scores, axis=1))
        weights = tl.exp(scores - higher[:, None])
        shrink = tl.exp(maximum - higher)
        v = tl.load(v_pool_ptr + place, mask=mask, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = total * shrink + tl.sum(weights, axis=1)
        maximum = higher

    out = head * splits + split
    tl.store(partial_ptr + out[:, None] * HEAD_DIM + deep[None, :], acc, mask=live)
    tl.store(maximum_ptr + out, maximum, mask=in_group)
    tl.store(sum_ptr + out, total, mask=in_group)


@triton.jit(do_not_specialize=["q_heads", "splits"])
def _decode_merge_kernel(
    partial_ptr,
    maximum_ptr,
    sum_ptr,
    lengths_ptr,
    out_ptr,
    q_heads,
    splits,
    HEAD_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    DEPTH: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    head = sequence * q_heads + tl.program_id(1)
    deep = tl.arange(0, DEPTH)
    in_head = deep < HEAD_DIM
    used = tl.cdiv(tl.load(lengths_ptr + sequence), SPLIT)
    maximum = float("-inf")
    total = 0.0
    acc = tl.zeros([DEPTH], tl.float32)
    for split in range(used):
        at = head * splits + split
        own = tl.load(maximum_ptr + at)
        higher = tl.maximum(maximum, own)
        shrink, weight = tl.exp(maximum - higher), tl.exp(own - higher)
        part = tl.load(partial_ptr + at * HEAD_DIM + deep, mask=in_head, other=0.0)
        acc = acc * shrink + part * weight
        total = total * shrink + tl.load(sum_ptr + at) * weight
        maximum = higher
    # A sequence of length 0 attends to nothing: zeros, not 0 / 0.
    out = acc / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + head * HEAD_DIM + deep, out.to(out_ptr.dtype.element_ty), mask=in_head)


def paged_decode_attention(
    q: Tensor, k_pool: Tensor, v_pool: Tensor, block_table: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """Return attention of each sequence's query; see `reference.paged_decode_attention`.

    Needs contiguous `q`, pools and table. Weights are rounded to the pool's dtype before they meet
    the values. Besides the keys and values it moves one fp32 partial per 256 keys and query head.
    """
    sequences, q_heads, head_dim = q.shape
    page, kv_heads = k_pool.shape[1:3]
    if not all(t.is_contiguous() for t in (q, k_pool, v_pool, block_table)) or q_heads % kv_heads:
        raise ValueError(
            f"paged_decode_attention needs contiguous tensors and whole groups: got q "
            f"{tuple(q.shape)}, pool {tuple(k_pool.shape)}"
        )
    out = torch.empty_like(q)
    if sequences == 0:
        return out
    group = q_heads // kv_heads
    config = decode_config(group, head_dim, q.element_size())
    splits = max(1, triton.cdiv(block_table.shape[1] * page, config.split))
    heads = sequences * q_heads
    partial = torch.empty((heads, splits, head_dim), dtype=torch.float32, device=q.device)
    maximum = torch.empty((heads, splits), dtype=torch.float32, device=q.device)
    total = torch.empty_like(maximum)
    _decode_split_kernel[(sequences, kv_heads, splits)](
        q,
        k_pool,
        v_pool,
        block_table,
        lengths,
        partial,
        maximum,
        total,
        scale,
        block_table.stride(0),
        k_pool.stride(1),
        q_heads,
        group,
        splits,
        PAGE=page,
        HEAD_DIM=head_dim,
        ROWS=config.rows,
        KEYS=config.keys,
        SPLIT=config.split,
        DEPTH=config.depth,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    _decode_merge_kernel[(sequences, q_heads)](
        partial,
        maximum,
        total,
        lengths,
        out,
        q_heads,
        splits,
        HEAD_DIM=head_dim,
        SPLIT=config.split,
        DEPTH=power_of_two(head_dim),
        num_warps=1,
    )
    return out
