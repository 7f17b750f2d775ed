"""Calls every kernel as a model of a given shape does, on tensors without memory.

It knows shapes and the kernels' own functions, no GPU: under `stub_driver.pretend` the calls
compile what the model would run. A new kernel gets a line in `LAUNCHES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rampway_server.kernels import compiled
from rampway_server.kernels.contract import LogitEdits, SamplingRules

if TYPE_CHECKING:
    from collections.abc import Callable

    from rampway_server.kernels.shapes import Shape

__all__ = ["DTYPES", "LAUNCHES"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_TOKENS = 3
_PAGES = 5


def _empty(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _int32(*shape: int) -> Tensor:
    return _empty(*shape, dtype=torch.int32)


def _rms_norm(shape: Shape, dtype: torch.dtype) -> None:
    x = _empty(_TOKENS, shape.hidden, dtype=dtype)
    weight = _empty(shape.hidden, dtype=dtype)
    compiled.rms_norm(x, weight, 1e-5)
    compiled.rms_norm(x, weight, 1e-5, torch.empty_like(x))
    if shape.head_norms:
        heads = _empty(_TOKENS * shape.q_heads, shape.head_dim, dtype=dtype)
        compiled.rms_norm(heads, _empty(shape.head_dim, dtype=dtype), 1e-5)


def _silu_mul(shape: Shape, dtype: torch.dtype) -> None:
    compiled.silu_mul(_empty(_TOKENS, 2 * shape.inner, dtype=dtype))


def _pools(shape: Shape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    size = (_PAGES, shape.page, shape.kv_heads, shape.head_dim)
    return _empty(*size, dtype=dtype), _empty(*size, dtype=dtype)


def _rope_kv_write(shape: Shape, dtype: torch.dtype) -> None:
    heads = shape.q_heads + 2 * shape.kv_heads
    positions = _empty(_TOKENS, dtype=torch.int64)
    compiled.rope_kv_write(
        _empty(_TOKENS, heads * shape.head_dim, dtype=dtype),
        _empty(64, shape.head_dim, dtype=torch.float32),
        positions,
        torch.empty_like(positions),
        *_pools(shape, dtype),
    )


def _paged_decode_attention(shape: Shape, dtype: torch.dtype) -> None:
    q = _empty(_TOKENS, shape.q_heads, shape.head_dim, dtype=dtype)
    table, lengths = _int32(_TOKENS, _PAGES), _int32(_TOKENS)
    compiled.paged_decode_attention(q, *_pools(shape, dtype), table, lengths, 0.125)


def _prefix_extend_attention(shape: Shape, dtype: torch.dtype) -> None:
    q = _empty(_TOKENS, shape.q_heads, shape.head_dim, dtype=dtype)
    runs = (_int32(1, _PAGES), _int32(1), _int32(2))
    compiled.prefix_extend_attention(q, *_pools(shape, dtype), *runs, 0.125)


def _sample(shape: Shape, _dtype: torch.dtype) -> None:
    column = _empty(_TOKENS, dtype=torch.float32)
    edits = LogitEdits(
        penalties=_empty(_TOKENS, 3, dtype=torch.float32),
        offsets=_int32(_TOKENS + 1),
        tokens=_int32(9),
        counts=_int32(9),
        added=_empty(9, dtype=torch.float32),
        longest=3,
    )
    rules = SamplingRules(
        temperature=column,
        top_k=_int32(_TOKENS),
        top_p=column,
        min_p=column,
        number=_empty(_TOKENS, dtype=torch.float64),
        edits=edits,
    )
    compiled.sample(_empty(_TOKENS, shape.vocab, dtype=torch.float32), rules)


LAUNCHES: dict[str, Callable[[Shape, torch.dtype], None]] = {
    "rms_norm": _rms_norm,
    "silu_mul": _silu_mul,
    "rope_kv_write": _rope_kv_write,
    "paged_decode_attention": _paged_decode_attention,
    "prefix_extend_attention": _prefix_extend_attention,
    "sample": _sample,
}
"""By the kernel's name in `contract.Kernels`; `sample` is fp32 whatever the model is."""
