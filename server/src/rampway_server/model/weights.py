"""Builds the weights of a model from its source, one tensor and one row block at a time.

It knows which tensors are fused; how a file stores them is the source's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rampway_server.model.linear import Linear
from rampway_server.model.llama import Layer, Weights
from rampway_server.model.names import expected_shapes
from rampway_server.model.rotary import cos_sin_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from rampway_server.model.source import ModelSource

__all__ = ["build_weights"]


def build_weights(
    source: ModelSource,
    *,
    dtype: torch.dtype,
    device: str,
    context_length: int,
    invariant: bool = False,
    on_layer: Callable[[int, int], None] = lambda _done, _total: None,
) -> Weights:
    """Return the weights in `dtype` on `device`; the peak is the result and one row block.

    `invariant` makes linear layers whose results do not depend on the batch, see `linear.py`.
    `on_layer(done, total)` is called after each layer.
    """
    config = source.config
    build = _Builder(source, dtype, device, invariant=invariant)
    embed = build.stacked("embed")
    layers = []
    for index in range(config.num_layers):
        layers.append(build.layer(index))
        on_layer(index + 1, config.num_layers)
    head = embed if config.tied_embeddings else build.stacked("lm_head")
    return Weights(
        embed=embed,
        layers=tuple(layers),
        norm=build.vector("norm"),
        lm_head=build.linear(head),
        cos_sin=cos_sin_table(config.rope, config.head_dim, context_length, device),
    )


class _Builder:
    def __init__(
        self, source: ModelSource, dtype: torch.dtype, device: str, *, invariant: bool
    ) -> None:
        self._source = source
        self._shapes = expected_shapes(source.config)
        self._dtype = dtype
        self._device = device
        self._invariant = invariant

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Linear:
        return Linear(weight, bias, invariant=self._invariant)

    def layer(self, index: int) -> Layer:
        config = self._source.config
        at = f"{index}."
        bias = self._bias(at) if config.qkv_bias else None
        return Layer(
            attn_norm=self.vector(at + "attn_norm"),
            qkv=self.linear(self.stacked(at + "q", at + "k", at + "v"), bias),
            q_norm=self.vector(at + "q_norm") if config.qk_norm else None,
            k_norm=self.vector(at + "k_norm") if config.qk_norm else None,
            o=self.linear(self.stacked(at + "o")),
            ffn_norm=self.vector(at + "ffn_norm"),
            gate_up=self.linear(self.stacked(at + "gate", at + "up")),
            down=self.linear(self.stacked(at + "down")),
        )

    def vector(self, name: str) -> Tensor:
        return self.stacked(name).view(-1)

    def stacked(self, *names: str) -> Tensor:
        """Return the named tensors' rows, one tensor after another, as one matrix."""
        shapes = [self._shapes[name] for name in names]
        rows = sum(shape[0] if len(shape) > 1 else 1 for shape in shapes)
        out = torch.empty((rows, shapes[0][-1]), dtype=self._dtype, device=self._device)
        at = 0
        for name in names:
            for piece in self._source.pieces(name):
                out[at : at + piece.shape[0]].copy_(piece)
                at += piece.shape[0]
        return out

    def _bias(self, at: str) -> Tensor:
        return torch.cat([self.vector(at + name) for name in ("q_bias", "k_bias", "v_bias")])
