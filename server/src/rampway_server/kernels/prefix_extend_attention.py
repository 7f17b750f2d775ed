"""Causal attention of runs of queries over paged keys: prompts, chunks and cached prefixes.

It knows queries, pools and page tables; see `reference.prefix_extend_attention`. A tile's rows are
(query, head of the group) pairs of one run and one key head. Keys that every row may see come
first and need no mask; the causal tail follows. Key tiles begin at position 0 whatever the chunk,
so the result does not depend on where a prompt was cut.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import extend_config

__all__ = ["prefix_extend_attention"]


@triton.jit
def _run_of_tile(offsets_ptr, runs, tile, QUERIES: tl.constexpr):
    """Return the run that tile number `tile` belongs to.

    Run n's tiles begin at `offsets[n] // QUERIES + n`: a bound that needs no prefix sum, at the
    price of at most one empty tile a run.
    """
    low = 0
    high = runs - 1
    while low < high:
        middle = (low + high + 1) // 2
        begins = tl.load(offsets_ptr + middle) // QUERIES + middle
        if begins <= tile:
            low = middle
        else:
            high = middle - 1
    return low


@triton.jit
def _fold(
    q,
    k_pool_ptr,
    v_pool_ptr,
    table_ptr,
    key,
    seen,
    visible,
    head_offset,
    stride_slot,
    deep,
    in_head,
    scale,
    maximum,
    total,
    acc,
    PAGE: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Return (maximum, total, acc) with one tile of keys folded in."""
    page = tl.load(table_ptr + key // PAGE, mask=seen, other=0)
    slot = (page.to(tl.int64) * PAGE + key % PAGE) * stride_slot + head_offset
    place = slot[:, None] + deep[None, :]
    mask = seen[:, None] & in_head[None, :]
    k = tl.load(k_pool_ptr + place, mask=mask, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if MASKED:
        scores = tl.where(key[None, :] <= visible[:, None], scores, float("-inf"))
    higher = tl.maximum(maximum, tl.max(scores, axis=1))
    weights = tl.exp(scores - higher[:, None])
    shrink = tl.exp(maximum - higher)
    v = tl.load(v_pool_ptr + place, mask=mask, other=0.0)
    acc = acc * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return higher, total * shrink + tl.sum(weights, axis=1), acc


@triton.jit(do_not_specialize=["stride_table", "q_heads", "runs"])
def _prefix_extend_kernel(
    q_ptr,
    k_pool_ptr,
    v_pool_ptr,
    table_ptr,
    starts_ptr,
    offsets_ptr,
    out_ptr,
    scale,
    stride_table,
    stride_slot,
    q_heads,
    runs,
    GROUP: tl.constexpr,
    PAGE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    QUERIES: tl.constexpr = ROWS // GROUP
    tile = tl.program_id(0)
    kv_head = tl.program_id(1)
    run = _run_of_tile(offsets_ptr, runs, tile, QUERIES)
    begin = tl.load(offsets_ptr + run)
    count = tl.load(offsets_ptr + run + 1) - begin
    first = (tile - (begin // QUERIES + run)) * QUERIES
    if first >= count:
        return
    start = tl.load(starts_ptr + run)

    row = tl.arange(0, ROWS)
    deep = tl.arange(0, DEPTH)
    in_head = deep < HEAD_DIM
    query = first + row // GROUP
    live = (row < QUERIES * GROUP) & (query < count)
    head = (begin + query).to(tl.int64) * q_heads + kv_head * GROUP + row % GROUP
    place = head[:, None] * HEAD_DIM + deep[None, :]
    mask = live[:, None] & in_head[None, :]
    q = tl.load(q_ptr + place, mask=mask, other=0.0)
    # Rows past the end see key 0, so that no softmax is over nothing.
    visible = tl.where(live, start + query, 0)

    maximum = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DEPTH], tl.float32)
    table = table_ptr + run.to(tl.int64) * stride_table
    offset = kv_head * HEAD_DIM
    end = start + tl.minimum(first + QUERIES, count)
    # Whole tiles of keys up to the first query; rows past the end may look, their result is
    # never stored.
    free = (start + first + 1) // KEYS * KEYS
    for at in range(0, free, KEYS):
        key = at + tl.arange(0, KEYS)
        maximum, total, acc = _fold(
            q, k_pool_ptr, v_pool_ptr, table, key, key < end, visible, offset, stride_slot,
            deep, in_head, scale, maximum, total, acc, PAGE, MASKED=False,
        )  # fmt: skip
    for at in range(free, end, KEYS):
        key = at + tl.arange(0, KEYS)
        maximum, total, acc = _fold(
            q, k_pool_ptr, v_pool_ptr, table, key, key < end, visible, offset, stride_slot,
            deep, in_head, scale, maximum, total, acc, PAGE, MASKED=True,
        )  # fmt: skip

    out = acc / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=mask)


def prefix_extend_attention(
    q: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    block_table: Tensor,
    starts: Tensor,
    offsets: Tensor,
    scale: float,
) -> Tensor:
    """Return causal attention of each run; see `reference.prefix_extend_attention`.

    Needs contiguous `q`, pools and table. Weights are rounded to the pool's dtype before they meet
    the values.
    """
    tokens, q_heads, head_dim = q.shape
    page, kv_heads = k_pool.shape[1:3]
    if not all(t.is_contiguous() for t in (q, k_pool, v_pool, block_table)) or q_heads % kv_heads:
        raise ValueError(
            f"prefix_extend_attention needs contiguous tensors and whole groups: got q "
            f"{tuple(q.shape)}, pool {tuple(k_pool.shape)}"
        )
    out = torch.empty_like(q)
    runs = starts.shape[0]
    if tokens == 0 or runs == 0:
        return out
    group = q_heads // kv_heads
    config = extend_config(group, head_dim, q.element_size())
    tiles = tokens // (config.rows // group) + runs
    _prefix_extend_kernel[(tiles, kv_heads)](
        q,
        k_pool,
        v_pool,
        block_table,
        starts,
        offsets,
        out,
        scale,
        block_table.stride(0),
        k_pool.stride(1),
        q_heads,
        runs,
        GROUP=group,
        PAGE=page,
        HEAD_DIM=head_dim,
        ROWS=config.rows,
        KEYS=config.keys,
        DEPTH=config.depth,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    return out
