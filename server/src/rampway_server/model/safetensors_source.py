"""A model in a Hugging Face folder: config.json to our config, tensors to our names.

It knows transformers' conventions of both rope_scaling and rope_parameters; the container
itself is `safetensors_file.py`'s affair.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from rampway_server.model.config import (
    ARCHITECTURES,
    Architecture,
    Llama3Scaling,
    ModelConfig,
    Rope,
    check,
)
from rampway_server.model.contract import ModelFileInfo
from rampway_server.model.fields import integer, real, unservable
from rampway_server.model.names import expected_shapes
from rampway_server.model.safetensors_file import StoredTensors, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from rampway_server.engine.tokenizer import Tokenizer
    from rampway_server.errors import UsageError

__all__ = ["SafetensorsSource"]

_PIECE_ELEMENTS = 4 << 20
_TOP = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
_DERIVED = ("rotary_emb.inv_freq", "attn.masked_bias")  # old exporters store what config implies


class SafetensorsSource:
    """An opened folder whose every tensor has been found with the right shape."""

    def __init__(self, folder: Path) -> None:
        """Read config.json and the headers; raises UsageError with one line."""
        self.folder = folder
        self._path = folder / "config.json"
        self._raw = read_json(self._path)
        architecture = self._architecture()
        self._refuse_unsupported()
        self._stored = StoredTensors(folder)
        self.config = self._config(architecture)
        self._check_tensors()

    def info(self) -> ModelFileInfo:
        """Return the facts of config and headers; see ModelSource."""
        table = self._stored.table
        kinds: dict[str, int] = {}
        for tensor in table.values():
            kinds[tensor.dtype] = kinds.get(tensor.dtype, 0) + 1
        return ModelFileInfo(
            path=self.folder,
            format="safetensors",
            model_id=self.folder.resolve().name,
            architecture=self.config.architecture,
            context_length=self.config.context_length,
            vocab_size=self.config.vocab_size,
            num_parameters=sum(prod(tensor.shape) for tensor in table.values()),
            weight_bytes=sum(tensor.num_bytes for tensor in table.values()),
            tensor_types=kinds,
        )

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """Yield row blocks in the stored dtype; see ModelSource."""
        stored = _file_name(name)
        shape = self._stored.table[stored].shape
        rows = prod(shape[:-1])
        step = max(1, _PIECE_ELEMENTS // shape[-1])
        for first in range(0, rows, step):
            yield self._stored.read(stored, first, min(step, rows - first))

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer from tokenizer.json and its neighbours; see ModelSource."""
        from rampway_server.model.folder_tokenizer import tokenizer_from_folder

        return tokenizer_from_folder(self.folder)

    def _architecture(self) -> Architecture:
        name = self._raw.get("model_type")
        for known in ARCHITECTURES:
            if name == known:
                return known
        raise self._fault(f"model_type {name!r}", f"one of {', '.join(ARCHITECTURES)}")

    def _refuse_unsupported(self) -> None:
        raw = self._raw
        if raw.get("quantization_config"):
            given = raw["quantization_config"]
            method = given.get("quant_method") if isinstance(given, dict) else given
            raise self._fault(
                f"weights quantised by {method!r}", "F32, F16 or BF16 weights, or GGUF"
            )
        if raw.get("hidden_act", "silu") != "silu":
            raise self._fault(f"hidden_act {raw['hidden_act']!r}", "'silu'")
        if raw.get("mlp_bias"):
            raise self._fault("mlp_bias true", "false")
        if raw.get("partial_rotary_factor", 1.0) != 1.0:
            raise self._fault(f"partial_rotary_factor {raw['partial_rotary_factor']}", "1.0")

    def _config(self, architecture: Architecture) -> ModelConfig:
        q_heads = self._int("num_attention_heads")
        hidden = self._int("hidden_size")
        table = self._stored.table
        config = ModelConfig(
            architecture=architecture,
            num_layers=self._int("num_hidden_layers"),
            hidden=hidden,
            inner=self._int("intermediate_size"),
            q_heads=q_heads,
            kv_heads=self._int("num_key_value_heads", q_heads),
            head_dim=self._int("head_dim", hidden // max(1, q_heads)),
            vocab_size=self._int("vocab_size"),
            context_length=self._context(),
            rms_eps=self._float(self._raw, "rms_norm_eps", 1e-6),
            rope=self._rope(),
            tied_embeddings=bool(
                self._raw.get("tie_word_embeddings", _TOP["lm_head"] not in table)
            ),
            qkv_bias="model.layers.0.self_attn.q_proj.bias" in table,
            qk_norm="model.layers.0.self_attn.q_norm.weight" in table,
        )
        return check(config, self._path)

    def _context(self) -> int:
        """Return the context, cut to the sliding window: within it full attention is exact."""
        context = self._int("max_position_embeddings")
        windowed = self._raw.get("use_sliding_window", self._raw.get("model_type") == "mistral")
        window = self._raw.get("sliding_window")
        if windowed and isinstance(window, int) and window > 0:
            return min(context, window)
        return context

    def _rope(self) -> Rope:
        given = self._raw.get("rope_parameters") or self._raw.get("rope_scaling") or {}
        if not isinstance(given, dict):
            raise self._fault(f"RoPE parameters {given!r}", "an object")
        default = self._float(self._raw, "rope_theta", 10_000.0)
        theta = self._float(given, "rope_theta", default)
        kind = given.get("rope_type", given.get("type", "default"))
        if given.get("partial_rotary_factor", 1.0) != 1.0:
            raise self._fault(f"partial_rotary_factor {given['partial_rotary_factor']}", "1.0")
        if kind == "default":
            return Rope(theta=theta)
        if kind == "linear":
            return Rope(theta=theta, linear_factor=self._float(given, "factor"))
        if kind == "llama3":
            return Rope(theta=theta, llama3=self._llama3(given))
        raise self._fault(f"RoPE scaling {kind!r}", "default, linear or llama3")

    def _llama3(self, given: dict[str, Any]) -> Llama3Scaling:
        scaling = Llama3Scaling(
            factor=self._float(given, "factor"),
            low_freq_factor=self._float(given, "low_freq_factor"),
            high_freq_factor=self._float(given, "high_freq_factor"),
            original_context=int(self._float(given, "original_max_position_embeddings")),
        )
        ordered = 0 < scaling.low_freq_factor < scaling.high_freq_factor
        if not ordered or scaling.factor <= 0 or scaling.original_context <= 0:
            raise self._fault(f"RoPE scaling {given!r}", "positive factors, low below high")
        return scaling

    def _check_tensors(self) -> None:
        table = self._stored.table
        if self.config.num_layers > len(table):
            raise self._fault(f"{self.config.num_layers} layers", "tensors for all of them")
        wanted = {_file_name(n): shape for n, shape in expected_shapes(self.config).items()}
        for name, shape in wanted.items():
            if name not in table:
                raise self._fault(f"no tensor {name!r}", "a complete model folder")
            if table[name].shape != shape:
                raise self._fault(f"{name!r} of shape {table[name].shape}", f"{shape}")
        extra = [name for name in table if name not in wanted and not name.endswith(_DERIVED)]
        if self.config.tied_embeddings:
            extra = [name for name in extra if name != _TOP["lm_head"]]  # a copy of the embedding
        if extra:
            # A tensor left out would be a silently different model.
            raise self._fault(f"{len(extra)} unknown tensors, {min(extra)!r} first", "none")

    def _int(self, key: str, default: int | None = None) -> int:
        return integer(self._path, key, self._raw.get(key), default)

    def _float(self, where: dict[str, Any], key: str, default: float | None = None) -> float:
        return real(self._path, key, where.get(key), default)

    def _fault(self, got: str, need: str) -> UsageError:
        return unservable(self._path, got, need)


def _file_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    index, _, part = name.partition(".")
    return f"model.layers.{index}.{_LAYER[part]}"
