"""Rotary embedding of queries and keys, fused with the write of keys and values into their pages.

It knows heads and slots; see `reference.rope_kv_write` for the specification. Fused, because the
keys would otherwise be written, read and written again.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import rope_config

__all__ = ["rope_kv_write"]


@triton.jit(do_not_specialize=["q_heads", "kv_heads"])
def _rope_kv_write_kernel(
    qkv_ptr,
    cos_sin_ptr,
    positions_ptr,
    slots_ptr,
    q_ptr,
    k_pool_ptr,
    v_pool_ptr,
    stride_qkv,
    stride_q,
    stride_slot,
    q_heads,
    kv_heads,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, HALF)
    in_half = pair < HEAD_DIM // 2
    live = (head[:, None] < q_heads + 2 * kv_heads) & in_half[None, :]
    source = qkv_ptr + token * stride_qkv + head[:, None] * HEAD_DIM + pair[None, :]
    low = tl.load(source, mask=live, other=0.0)
    high = tl.load(source + HEAD_DIM // 2, mask=live, other=0.0)

    angle = cos_sin_ptr + tl.load(positions_ptr + token) * HEAD_DIM + pair
    cos = tl.load(angle, mask=in_half, other=0.0)[None, :]
    sin = tl.load(angle + HEAD_DIM // 2, mask=in_half, other=0.0)[None, :]
    wide_low, wide_high = low.to(tl.float32), high.to(tl.float32)
    turned_low = (wide_low * cos - wide_high * sin).to(q_ptr.dtype.element_ty)
    turned_high = (wide_high * cos + wide_low * sin).to(q_ptr.dtype.element_ty)

    is_q = live & (head[:, None] < q_heads)
    q_at = q_ptr + token * stride_q + head[:, None] * HEAD_DIM + pair[None, :]
    tl.store(q_at, turned_low, mask=is_q)
    tl.store(q_at + HEAD_DIM // 2, turned_high, mask=is_q)

    slot = tl.load(slots_ptr + token) * stride_slot
    key_head = head - q_heads
    is_k = live & (key_head[:, None] >= 0) & (key_head[:, None] < kv_heads)
    k_at = k_pool_ptr + slot + key_head[:, None] * HEAD_DIM + pair[None, :]
    tl.store(k_at, turned_low, mask=is_k)
    tl.store(k_at + HEAD_DIM // 2, turned_high, mask=is_k)

    value_head = key_head - kv_heads
    is_v = live & (value_head[:, None] >= 0)
    v_at = v_pool_ptr + slot + value_head[:, None] * HEAD_DIM + pair[None, :]
    tl.store(v_at, low, mask=is_v)
    tl.store(v_at + HEAD_DIM // 2, high, mask=is_v)


def rope_kv_write(
    qkv: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    slots: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
) -> Tensor:
    """Return rotated queries and store keys and values; see `reference.rope_kv_write`.

    Needs contiguous columns of `qkv` and contiguous pools.
    """
    kv_heads, head_dim = k_pool.shape[2:]
    tokens, heads = qkv.shape[0], qkv.shape[1] // head_dim
    q_heads = heads - 2 * kv_heads
    dense = qkv.stride(-1) == 1 and k_pool.is_contiguous() and v_pool.is_contiguous()
    if not dense or q_heads < 1 or heads * head_dim != qkv.shape[1] or head_dim % 2:
        raise ValueError(
            f"rope_kv_write needs whole heads in contiguous columns and contiguous pools: got qkv "
            f"{tuple(qkv.shape)}, pool {tuple(k_pool.shape)}"
        )
    out = torch.empty((tokens, q_heads, head_dim), dtype=qkv.dtype, device=qkv.device)
    if tokens == 0:
        return out
    config = rope_config(heads, head_dim)
    _rope_kv_write_kernel[(tokens, triton.cdiv(heads, config.heads))](
        qkv,
        cos_sin,
        positions,
        slots,
        out,
        k_pool,
        v_pool,
        qkv.stride(0),
        out.stride(0),
        k_pool.stride(1),
        q_heads,
        kv_heads,
        HEAD_DIM=head_dim,
        HALF=config.half,
        HEADS=config.heads,
        num_warps=config.num_warps,
    )
    return out
