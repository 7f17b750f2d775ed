"""SwiGLU's element-wise half: `silu(gate) * up`.

It knows rows and columns; see `reference.silu_mul` for the specification.
"""
# mypy: disable-error-code="no-untyped-def, misc, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rampway_server.kernels.configs import silu_mul_config

__all__ = ["silu_mul"]


@triton.jit
def _silu_mul_kernel(
    gate_ptr, up_ptr, out_ptr, stride_in, stride_out, columns, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # int64: rows * stride passes 2^31 on long prefills
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = column < columns
    gate = tl.load(gate_ptr + row * stride_in + column, mask=live, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * stride_in + column, mask=live, other=0.0).to(tl.float32)
    out = (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + column, out, mask=live)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return `silu(gate) * up`; specification, shapes and cost: `reference.silu_mul`."""
    if gate_up.dim() != 2 or gate_up.stride(-1) != 1 or gate_up.shape[1] % 2:
        raise ValueError(
            "silu_mul needs [tokens, 2 * inner] with contiguous columns: got "
            f"{tuple(gate_up.shape)} with strides {gate_up.stride()}"
        )
    tokens, inner = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, inner, dtype=gate_up.dtype, device=gate_up.device)
    if tokens == 0:
        return out
    config = silu_mul_config(inner)
    _silu_mul_kernel[(tokens, triton.cdiv(inner, config.block))](
        gate_up,
        gate_up[:, inner:],
        out,
        gate_up.stride(0),
        out.stride(0),
        inner,
        BLOCK=config.block,
        num_warps=config.num_warps,
    )
    return out
