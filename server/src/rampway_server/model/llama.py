"""The dense decoder: Llama, and with a bias or a norm on queries and keys Mistral and Qwen.

It knows weights, kernels and one step's layout; nothing of files, requests or sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rampway_server.kernels.contract import Kernels
    from rampway_server.model.config import ModelConfig
    from rampway_server.model.kv_pool import KvPool
    from rampway_server.model.layout import Layout
    from rampway_server.model.linear import Linear

__all__ = ["Layer", "Llama", "Weights"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights; projections that read the same input are fused."""

    attn_norm: Tensor
    qkv: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    o: Linear
    ffn_norm: Tensor
    gate_up: Linear
    down: Linear


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model, in the dtype it computes in."""

    embed: Tensor
    """`[vocabulary, hidden]`."""
    layers: tuple[Layer, ...]
    norm: Tensor
    lm_head: Linear
    cos_sin: Tensor
    """`[context, head size]` fp32; see `rotary.py`."""


class Llama:
    """A pre-norm decoder with rotary embeddings, grouped-query attention and SwiGLU."""

    def __init__(self, config: ModelConfig, weights: Weights, kernels: Kernels) -> None:
        self.config = config
        self._weights = weights
        self.kernels = kernels

    def forward(self, layout: Layout, pool: KvPool) -> Tensor:
        """Return fp32 logits `[S, vocabulary]` of the sampled tokens; writes KV into the pool."""
        weights, kernels, eps = self._weights, self.kernels, self.config.rms_eps
        residual = weights.embed[layout.tokens]
        x = kernels.rms_norm(residual, weights.layers[0].attn_norm, eps)
        last = len(weights.layers) - 1
        for index, layer in enumerate(weights.layers):
            x = layer.o(self._attention(layer, x, layout, pool.keys[index], pool.values[index]))
            if index == last:
                # Only rows that are sampled need the rest of the last layer.
                x, residual = x[layout.sampled], residual[layout.sampled]
            x = kernels.rms_norm(x, layer.ffn_norm, eps, residual)
            x = layer.down(kernels.silu_mul(layer.gate_up(x)))
            norm = weights.norm if index == last else weights.layers[index + 1].attn_norm
            x = kernels.rms_norm(x, norm, eps, residual)
        return weights.lm_head(x).float()

    def _attention(
        self, layer: Layer, x: Tensor, layout: Layout, keys: Tensor, values: Tensor
    ) -> Tensor:
        """Return `[T, Hq * D]`; decode rows and extend rows take their own kernels."""
        kernels, scale = self.kernels, self.config.head_dim**-0.5
        qkv = layer.qkv(x)
        if layer.q_norm is not None and layer.k_norm is not None:
            qkv = self._head_norms(qkv, layer.q_norm, layer.k_norm)
        q = kernels.rope_kv_write(
            qkv, self._weights.cos_sin, layout.positions, layout.slots, keys, values
        )
        parts = []
        split = layout.num_decode
        if split:
            parts.append(
                kernels.paged_decode_attention(
                    q[:split], keys, values, layout.decode_table, layout.decode_lengths, scale
                )
            )
        if split < q.shape[0]:
            parts.append(
                kernels.prefix_extend_attention(
                    q[split:],
                    keys,
                    values,
                    layout.extend_table,
                    layout.extend_starts,
                    layout.extend_offsets,
                    scale,
                )
            )
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.view(q.shape[0], -1)

    def _head_norms(self, qkv: Tensor, q_norm: Tensor, k_norm: Tensor) -> Tensor:
        """Return `qkv` with every query and key head normed on its own (Qwen 3)."""
        config = self.config
        q_width, kv_width = config.q_heads * config.head_dim, config.kv_heads * config.head_dim
        q, k, v = torch.split(qkv, [q_width, kv_width, kv_width], dim=-1)

        def normed(x: Tensor, weight: Tensor) -> Tensor:
            heads = x.reshape(-1, config.head_dim)
            return self.kernels.rms_norm(heads, weight, config.rms_eps).view(x.shape)

        return torch.cat((normed(q, q_norm), normed(k, k_norm), v), dim=-1)
