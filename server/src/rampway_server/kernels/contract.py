"""What every set of kernels provides; the model calls these and knows no device.

Two modules fulfil it: `reference` (plain torch, the specification) and `compiled` (Triton).
Shapes: T tokens, N sequences, H hidden, I feed-forward width, D head size, Hq query heads,
Hk key/value heads. A pool is `[pages, page, Hk, D]`; a slot is `page id * page + offset`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Kernels"]


class Kernels(Protocol):
    """One implementation of all kernels. `reference.py` documents shapes, dtypes and numerics."""

    NAME: str

    def rms_norm(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
    ) -> Tensor:
        """Return RMSNorm of `x`, or of `residual += x` where a residual is given."""

    def rope_kv_write(
        self,
        qkv: Tensor,
        cos_sin: Tensor,
        positions: Tensor,
        slots: Tensor,
        k_pool: Tensor,
        v_pool: Tensor,
    ) -> Tensor:
        """Return rotated queries; write rotated keys and the values into the pools."""

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """Return `silu(gate) * up` of the two halves."""

    def paged_decode_attention(
        self,
        q: Tensor,
        k_pool: Tensor,
        v_pool: Tensor,
        block_table: Tensor,
        lengths: Tensor,
        scale: float,
    ) -> Tensor:
        """Return attention of one query a sequence over its first `lengths` positions."""

    def prefix_extend_attention(
        self,
        q: Tensor,
        k_pool: Tensor,
        v_pool: Tensor,
        block_table: Tensor,
        starts: Tensor,
        offsets: Tensor,
        scale: float,
    ) -> Tensor:
        """Return causal attention of runs of queries over everything before them."""
