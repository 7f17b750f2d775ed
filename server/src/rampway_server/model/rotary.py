"""The table of rotary embedding angles for a model's context.

It knows the scaling rules; applying the table is a kernel's affair.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from rampway_server.model.config import Llama3Scaling, Rope

__all__ = ["cos_sin_table"]


def cos_sin_table(rope: Rope, head_dim: int, context: int, device: str) -> Tensor:
    """Return `[context, head_dim]` fp32: cosines of each position's angles, then sines."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.llama3 is not None:
        frequencies = _llama3(frequencies, rope.llama3)
    if rope.divisors is not None:
        frequencies = frequencies / torch.tensor(rope.divisors, dtype=torch.float32)
    frequencies = frequencies / rope.linear_factor
    angles = torch.outer(torch.arange(context, dtype=torch.float32), frequencies)
    return torch.cat((angles.cos(), angles.sin()), dim=-1).to(device)


def _llama3(frequencies: Tensor, scaling: Llama3Scaling) -> Tensor:
    """Return frequencies with long waves slowed by the factor and a ramp between long and short."""
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_context / wavelengths
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = ((turns - scaling.low_freq_factor) / span).clamp(0.0, 1.0)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies
