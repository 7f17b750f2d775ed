"""Builders for tests of the model side: small random models on disk, rows, and logits of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rampway_server.engine.batch import Row, Sampling
from rampway_server.kernels.dispatch import select
from rampway_server.model.kv_pool import KvPool, allocate
from rampway_server.model.layout import lay_out
from rampway_server.model.llama import Llama
from rampway_server.model.source import open_source
from rampway_server.model.weights import build_weights

if TYPE_CHECKING:
    from pathlib import Path

    from rampway_server.model.config import ModelConfig

# Small matrices gain nothing from threads, and waiting for a busy core costs much.
torch.set_num_threads(1)

GREEDY = Sampling(temperature=0.0)

SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 97,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Engine:
    """A model with a pool, without an engine around it."""

    model: Llama
    pool: KvPool
    config: ModelConfig
    invariant: bool = False

    def logits(self, *rows: Row) -> torch.Tensor:
        """Return fp32 logits of each row's last token, in row order; KV is written."""
        with torch.inference_mode():
            layout = lay_out(rows, self.pool.page_size, "cpu", split_decode=not self.invariant)
            found = self.model.forward(layout, self.pool)
        return found[torch.tensor(layout.sampled_rows).argsort()]


def open_engine(
    path: Path,
    *,
    page_size: int = 4,
    pages: int = 256,
    kernels: str = "auto",
    dtype: torch.dtype = torch.float32,
    invariant: bool = False,
) -> Engine:
    """Return the model at `path` on CPU."""
    source = open_source(path)
    config = source.config
    with torch.inference_mode():
        weights = build_weights(
            source,
            dtype=dtype,
            device="cpu",
            context_length=config.context_length,
            invariant=invariant,
        )
    pool = allocate(config, pages, page_size, dtype, "cpu")
    model = Llama(config, weights, select("cpu", kernels, invariant=invariant))
    return Engine(model, pool, config, invariant)


def save_random(folder: Path, kind: str, **changes: Any) -> Any:
    """Save a small random model of transformers' class `kind` and return it, in fp32."""
    import transformers

    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**(SMALL | changes))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # The initial values are so small that every logit is near zero, and norms are all one.
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    model.save_pretrained(folder, max_shard_size="40KB" if changes.get("sharded") else "5GB")
    return model


def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    """Return transformers' fp32 logits `[len(tokens), vocabulary]`, without cache or pages."""
    with torch.no_grad():
        found: torch.Tensor = model(torch.tensor([tokens]), use_cache=False).logits[0].float()
    return found


def row(
    tokens: list[int], pages: list[int], *, start: int = 0, sampling: Sampling | None = GREEDY
) -> Row:
    """Return a row that computes `tokens` from position `start` on."""
    return Row(np.array(tokens, np.int32), start, np.array(pages, np.int32), sampling)


def prompt(length: int, *, seed: int = 0, vocab: int = SMALL["vocab_size"]) -> list[int]:
    """Return random token ids."""
    return np.random.default_rng(seed).integers(3, vocab, length).tolist()
