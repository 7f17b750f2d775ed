"""What a model is made of, whatever file says it; knows no file format and no tensors.

Everything that would change the output and is not implemented is refused here by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rampway_server.errors import UsageError

__all__ = ["ARCHITECTURES", "Architecture", "Llama3Scaling", "ModelConfig", "Rope", "check"]

Architecture = Literal["llama", "mistral", "qwen2", "qwen3"]
ARCHITECTURES: tuple[Architecture, ...] = ("llama", "mistral", "qwen2", "qwen3")

_LARGEST = 1 << 24  # of any size in a config: 16 M rows, columns or positions


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's RoPE scaling: low frequencies are divided, high ones kept, a ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding over the whole head, halves rotated (not pairs)."""

    theta: float = 10_000.0
    linear_factor: float = 1.0
    """Positions are divided by it."""
    llama3: Llama3Scaling | None = None
    divisors: tuple[float, ...] | None = None
    """Per frequency; GGUF files carry Llama 3's scaling in this form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and choices of one dense decoder."""

    architecture: Architecture
    num_layers: int
    hidden: int
    inner: int
    """Width of the feed-forward layer."""
    q_heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    """Positions the model was made for, or its sliding window where that is shorter."""
    rms_eps: float
    rope: Rope
    tied_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def qkv_width(self) -> int:
        """Return the columns of the fused query, key and value projection."""
        return (self.q_heads + 2 * self.kv_heads) * self.head_dim

    def kv_bytes_per_token(self, itemsize: int) -> int:
        """Return the bytes that one position takes in the KV pool, all layers together."""
        return 2 * self.num_layers * self.kv_heads * self.head_dim * itemsize


def check(config: ModelConfig, path: object) -> ModelConfig:
    """Return `config`, or raise one UsageError that names every size which cannot be."""
    sizes = {
        "layers": config.num_layers,
        "hidden size": config.hidden,
        "feed-forward size": config.inner,
        "query heads": config.q_heads,
        "key/value heads": config.kv_heads,
        "head size": config.head_dim,
        "vocabulary size": config.vocab_size,
        "context length": config.context_length,
    }
    faults = [
        f"{name} {value}: need 1 to {_LARGEST}"
        for name, value in sizes.items()
        if not 1 <= value <= _LARGEST
    ]
    if not faults and config.q_heads % config.kv_heads:
        faults.append(f"{config.q_heads} query heads: need a multiple of {config.kv_heads}")
    if config.head_dim % 2:
        faults.append(f"head size {config.head_dim}: need an even one")
    if not 0 < config.rms_eps < 1:
        faults.append(f"RMSNorm epsilon {config.rms_eps}: need above 0 and below 1")
    if not config.rope.theta > 0 or not config.rope.linear_factor > 0:
        faults.append(f"RoPE theta {config.rope.theta}: need above 0")
    if faults:
        raise UsageError(f"{path} describes no model: {'; '.join(faults)}")
    return config
