"""Model shapes whose kernels are compiled ahead of time: those that are recorded, those in the image.

It knows sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RECORDED", "SERVED", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What the kernels see of a model."""

    name: str
    hidden: int
    inner: int
    q_heads: int
    kv_heads: int
    head_dim: int
    vocab: int = 128_256
    head_norms: bool = False
    """Queries and keys are normed by head (Qwen 3)."""
    page: int = 16


SMOLLM2 = Shape("SmolLM2-135M", 576, 1536, 9, 3, 64, vocab=49_152)
LLAMA_8B = Shape("Llama-3.1-8B, Mistral-7B, Qwen3-8B", 4096, 14336, 32, 8, 128, head_norms=True)
QWEN_06B = Shape("Qwen3-0.6B", 1024, 3072, 16, 8, 128, vocab=151_936, head_norms=True)

RECORDED = (
    SMOLLM2,
    LLAMA_8B,
    QWEN_06B,
    Shape("head 80", 2560, 10240, 32, 32, 80),
    Shape("head 96", 3072, 8192, 32, 32, 96),
    Shape("head 256", 2048, 16384, 8, 1, 256),
)
"""One for every head size and for groups of 1 to 8 query heads a key head."""

SERVED = (
    SMOLLM2,
    LLAMA_8B,
    QWEN_06B,
    Shape("Llama-3.2-1B", 2048, 8192, 32, 8, 64),
    Shape("Llama-3.2-3B", 3072, 8192, 24, 8, 128),
    Shape("Llama-3.1-70B, Qwen2.5-72B", 8192, 28672, 64, 8, 128),
    Shape("Qwen2.5-0.5B", 896, 4864, 14, 2, 64, vocab=151_936),
    Shape("Qwen2.5-1.5B", 1536, 8960, 12, 2, 128, vocab=151_936),
    Shape("Qwen2.5-7B", 3584, 18944, 28, 4, 128, vocab=152_064),
    Shape("Qwen2.5-14B, Qwen3-14B", 5120, 17408, 40, 8, 128, vocab=152_064, head_norms=True),
)
"""Their kernels lie compiled in the server image, in bfloat16 with pages of 16."""
