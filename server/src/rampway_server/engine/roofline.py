"""How long a step would take on a named GPU: a roofline over FLOPs and bytes.

It knows no requests and runs nothing; figures are published peaks and stated efficiencies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.engine.batch import Row

__all__ = ["GPUS", "MODELS", "Gpu", "ModelShape", "Roofline", "gpu_named", "shape_named"]

BYTES_PER_WEIGHT = 2
COMPUTE_EFFICIENCY = 0.6
"""Share of peak FLOP/s that prefill reaches (FlashAttention-3 reports 0.75 of H100 for attention
alone, large GEMMs about 0.7; a whole layer is below both)."""
BANDWIDTH_EFFICIENCY = 0.8
"""Share of peak bandwidth that decode reaches (design goal of the paged decode kernel)."""
STEP_OVERHEAD_SECONDS = 0.0005
"""Launch and sampling outside the roofline, with CUDA graphs."""
SCALING_EFFICIENCY = 0.9
"""What tensor parallelism keeps of each further GPU."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Published peaks of one device, dense bf16."""

    name: str
    flops: float
    bytes_per_second: float
    memory_bytes: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100", 312e12, 2.04e12, 80e9),
        Gpu("h100", 989e12, 3.35e12, 80e9),
        Gpu("h200", 989e12, 4.8e12, 141e9),
        Gpu("b200", 2250e12, 8.0e12, 180e9),
    )
}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a dense decoder-only model that decide its cost."""

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context_length: int
    tied_embeddings: bool = False

    @property
    def parameters(self) -> int:
        """Weights that a step reads, embedding rows not counted (one row a token is read)."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        mlp = 3 * self.hidden * self.intermediate
        return self.layers * (attention + mlp) + self.hidden * self.vocab_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""
        embedding = 0 if self.tied_embeddings else self.hidden * self.vocab_size
        return (self.parameters + embedding) * BYTES_PER_WEIGHT

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values a token holds."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES_PER_WEIGHT


MODELS = {
    shape.name: shape
    for shape in (
        ModelShape("llama-3-8b", 32, 4096, 14336, 32, 8, 128, 128256, 8192),
        ModelShape("llama-3-70b", 80, 8192, 28672, 64, 8, 128, 128256, 8192),
        ModelShape("qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960),
    )
}


def gpu_named(name: str) -> Gpu:
    """Return the device; raises UsageError naming the known ones."""
    if name not in GPUS:
        raise UsageError(f"simulated GPU is unknown: got {name!r}, need one of {', '.join(GPUS)}")
    return GPUS[name]


def shape_named(name: str) -> ModelShape:
    """Return a built-in shape, or the one a Hugging Face config.json (or its folder) states."""
    if name.lower() in MODELS:
        return MODELS[name.lower()]
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if not path.is_file():
        raise UsageError(
            f"simulated model is unknown: got {name!r}, need one of {', '.join(MODELS)}"
            " or the path of a config.json"
        )
    try:
        return _shape_of(path, json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"simulated model cannot be read from {str(path)!r}: {error!r}; need a Hugging Face"
            " config.json of a dense decoder-only model"
        ) from error


def _shape_of(path: Path, config: dict[str, Any]) -> ModelShape:
    heads = int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    return ModelShape(
        name=path.parent.name or path.stem,
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        intermediate=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocab_size=int(config["vocab_size"]),
        context_length=int(config["max_position_embeddings"]),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


@dataclass(frozen=True, slots=True)
class Roofline:
    """A model on the smallest power of two of GPUs that holds it, and what its steps cost."""

    shape: ModelShape
    gpu: Gpu
    speed: float = 1.0
    """1.0 is the device as published; 0.6 takes 1/0.6 of the time."""

    @property
    def gpus(self) -> int:
        """GPUs used: weights may take at most 60 % of their memory, the rest is KV."""
        count = 1
        while self.shape.weight_bytes > 0.6 * count * self.gpu.memory_bytes:
            count *= 2
        return count

    @property
    def _scale(self) -> float:
        return 1 + (self.gpus - 1) * SCALING_EFFICIENCY

    def pages(self, page_size: int, mem_fraction: float) -> int:
        """Pages that fit into `mem_fraction` of the memory the weights leave free."""
        free = self.gpus * self.gpu.memory_bytes - self.shape.weight_bytes
        return int(free * mem_fraction / (self.shape.kv_bytes_per_token * page_size))

    def step_seconds(self, rows: Sequence[Row]) -> float:
        """Return the time of one step: the slower of its compute and its memory traffic."""
        new = sum(len(row.tokens) for row in rows)
        kv_read = sum(row.start + len(row.tokens) for row in rows)
        # Query i of a row sees start + i + 1 keys: the mean is start + (n + 1) / 2.
        pairs = sum(len(row.tokens) * (row.start + (len(row.tokens) + 1) / 2) for row in rows)
        return self.seconds(new, kv_read, pairs)

    def seconds(self, new_tokens: int, kv_read_tokens: int, attention_pairs: float) -> float:
        """Return the time of a step of these sizes."""
        shape = self.shape
        attention = 4 * shape.layers * shape.heads * shape.head_dim * attention_pairs
        flops = 2 * shape.parameters * new_tokens + attention
        traffic = shape.parameters * BYTES_PER_WEIGHT + shape.kv_bytes_per_token * (
            kv_read_tokens + new_tokens
        )
        compute = flops / (self.gpu.flops * COMPUTE_EFFICIENCY)
        memory = traffic / (self.gpu.bytes_per_second * BANDWIDTH_EFFICIENCY)
        return (max(compute, memory) / self._scale + STEP_OVERHEAD_SECONDS) / self.speed
