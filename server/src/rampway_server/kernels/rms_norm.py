"""RMSNorm with an optional residual sum, one row a program.

It knows rows and columns; see `reference.rms_norm` for the specification.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import rms_norm_config

__all__ = ["rms_norm"]


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    stride_x,
    stride_residual,
    stride_out,
    columns,
    eps,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # int64: rows * stride passes 2^31 on long prefills
    column = tl.arange(0, BLOCK)
    live = column < columns
    x = tl.load(x_ptr + row * stride_x + column, mask=live, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        at = residual_ptr + row * stride_residual + column
        x += tl.load(at, mask=live, other=0.0).to(tl.float32)
        # The stored sum is what later layers see, so it is also what is normed.
        rounded = x.to(residual_ptr.dtype.element_ty)
        tl.store(at, rounded, mask=live)
        x = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=live, other=0.0).to(tl.float32)
    out = (x * scale * weight).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + column, out, mask=live)


def rms_norm(x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None) -> Tensor:
    """Return `x / rms(x) * weight`; specification, shapes and cost: `reference.rms_norm`.

    Needs contiguous columns. One pass: every element is read and written once.
    """
    rows, columns = x.shape
    faults = x.stride(-1) != 1 or (residual is not None and residual.stride(-1) != 1)
    if faults or weight.shape != (columns,) or (residual is not None and residual.shape != x.shape):
        raise ValueError(
            f"rms_norm needs contiguous columns, one weight a column and a residual like x: got x "
            f"{tuple(x.shape)} with strides {x.stride()}, weight {tuple(weight.shape)}"
        )
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if rows == 0:
        return out
    config = rms_norm_config(columns)
    summed = x if residual is None else residual
    _rms_norm_kernel[(rows,)](
        x,
        summed,
        weight,
        out,
        x.stride(0),
        summed.stride(0),
        out.stride(0),
        columns,
        eps,
        HAS_RESIDUAL=residual is not None,
        BLOCK=config.block,
        num_warps=config.num_warps,
    )
    return out
