"""Our names of a dense decoder's tensors and the shapes a config gives them.

It knows neither file formats nor where tensors lie; both readers translate to these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rampway_server.model.config import ModelConfig

__all__ = ["expected_shapes"]


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return every tensor the model needs and its row-major shape; linear weights are [out, in]."""
    shapes: dict[str, tuple[int, ...]] = {
        "embed": (config.vocab_size, config.hidden),
        "norm": (config.hidden,),
    }
    if not config.tied_embeddings:
        shapes["lm_head"] = (config.vocab_size, config.hidden)
    layer = _layer_shapes(config)
    for index in range(config.num_layers):
        shapes.update({f"{index}.{name}": shape for name, shape in layer.items()})
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden, config.inner
    q_width, kv_width = config.q_heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (q_width, hidden),
        "k": (kv_width, hidden),
        "v": (kv_width, hidden),
        "o": (hidden, q_width),
        "ffn_norm": (hidden,),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    if config.qkv_bias:
        shapes |= {"q_bias": (q_width,), "k_bias": (kv_width,), "v_bias": (kv_width,)}
    if config.qk_norm:
        shapes |= {"q_norm": (config.head_dim,), "k_norm": (config.head_dim,)}
    return shapes
