"""What every set of kernels provides; the model calls these and knows no device.

Two modules fulfil it: `reference` (plain torch, the specification) and `compiled` (Triton).
Shapes: T tokens, N sequences, H hidden, I feed-forward width, D head size, Hq query heads,
Hk key/value heads. A pool is `[pages, page, Hk, D]`; a slot is `page id * page + offset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Kernels", "LogitEdits", "SamplingRules"]


@dataclass(frozen=True, slots=True)
class LogitEdits:
    """Logits that change before a row is drawn: penalties for tokens seen, biases, prohibitions.

    Row n owns entries `offsets[n] : offsets[n + 1]` of the flat tensors; a token stands there once.
    """

    penalties: Tensor
    """`[N, 3]` fp32: repetition (a factor, 1 changes nothing), presence, frequency."""
    offsets: Tensor
    """`[N + 1]` int32."""
    tokens: Tensor
    """`[M]` int32."""
    counts: Tensor
    """`[M]` int32, how often the row drew the token; 0: only its prompt has it, -1: neither has."""
    added: Tensor
    """`[M]` fp32, added last; -inf forbids the token."""
    longest: int
    """Entries of the row that has most."""


@dataclass(frozen=True, slots=True)
class SamplingRules:
    """How each of N rows is drawn; tensors on the device of the logits."""

    temperature: Tensor
    """`[N]` fp32; 0 is greedy."""
    top_k: Tensor
    """`[N]` int32; 0 keeps all."""
    top_p: Tensor
    """`[N]` fp32, applied to the mass that top-k leaves."""
    min_p: Tensor
    """`[N]` fp32, relative to the most likely token."""
    number: Tensor
    """`[N]` fp64 in [0, 1), a function of a row's seed and position and of nothing else."""
    edits: LogitEdits | None = None


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

    def sample(self, logits: Tensor, rules: SamplingRules) -> Tensor:
        """Return one drawn token a row; `logits` are changed in place."""
