"""A model in one GGUF file: its keys to our config, its tensors to our names and row order.

It knows llama.cpp's conventions; the container itself is `gguf_file.py`'s affair.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from rampway_server.model.config import Architecture, ModelConfig, Rope, check
from rampway_server.model.contract import ModelFileInfo
from rampway_server.model.fields import integer, real, unservable
from rampway_server.model.gguf_file import GgufArray, GgufFile
from rampway_server.model.names import expected_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from rampway_server.engine.tokenizer import Tokenizer
    from rampway_server.errors import UsageError

__all__ = ["GgufSource"]

_PIECE_BYTES = 16 << 20  # of float32: dequantising needs a few times this
_TOP = {"embed": "token_embd.weight", "norm": "output_norm.weight", "lm_head": "output.weight"}
_LAYER = {
    "attn_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
_PERMUTED = frozenset({"q", "k", "q_bias", "k_bias"})
_ARCHITECTURES: tuple[Architecture, ...] = ("llama", "qwen2", "qwen3")  # Mistral's is "llama"
_ROPE_DIVISORS = "rope_freqs.weight"


class GgufSource:
    """An opened GGUF model whose every tensor has been found with the right shape."""

    def __init__(self, path: Path) -> None:
        """Read the header and check it; raises UsageError with one line."""
        self.file = GgufFile(path)
        self.config = self._config()
        self._check_tensors()

    def info(self) -> ModelFileInfo:
        """Return the facts of the header; see ModelSource."""
        kinds: dict[str, int] = {}
        for tensor in self.file.tensors.values():
            kinds[tensor.type_name] = kinds.get(tensor.type_name, 0) + 1
        return ModelFileInfo(
            path=self.file.path,
            format="gguf",
            model_id=self.file.path.stem,
            architecture=self.config.architecture,
            context_length=self.config.context_length,
            vocab_size=self.config.vocab_size,
            num_parameters=sum(prod(t.shape) for t in self.file.tensors.values()),
            weight_bytes=sum(t.num_bytes for t in self.file.tensors.values()),
            tensor_types=kinds,
        )

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """Yield float32 row blocks; see ModelSource."""
        import torch

        tensor = self.file.tensors[_file_name(name)]
        rows = prod(tensor.shape[:-1])
        if self._is_permuted(name):
            whole = torch.from_numpy(self.file.dequantised(tensor, 0, rows))
            # A bias is one row of the file, but one number an output row like the weight.
            by_output = whole.reshape(tensor.shape[0], -1)
            yield _unpermuted(by_output, self.config.head_dim).reshape(whole.shape)
            return
        step = max(1, _PIECE_BYTES // (4 * tensor.shape[-1]))
        for first in range(0, rows, step):
            yield torch.from_numpy(self.file.dequantised(tensor, first, min(step, rows - first)))

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer from `tokenizer.ggml.*`; see ModelSource."""
        from rampway_server.model.gguf_tokenizer import tokenizer_from_gguf

        return tokenizer_from_gguf(self.file)

    def _is_permuted(self, name: str) -> bool:
        # llama.cpp rotates pairs for this architecture, so its converter interleaves the halves.
        return self.config.architecture == "llama" and name.rpartition(".")[2] in _PERMUTED

    def _config(self) -> ModelConfig:
        architecture = self._architecture()
        self._refuse_unsupported()
        q_heads = self._int("attention.head_count")
        hidden = self._int("embedding_length")
        head_dim = self._int("attention.key_length", hidden // max(1, q_heads))
        for key in ("attention.value_length", "rope.dimension_count"):
            if self._int(key, head_dim) != head_dim:
                raise self._fault(f"{key} {self._int(key)}", f"the head size {head_dim}")
        window = self._int("attention.sliding_window", 0)
        context = self._int("context_length")
        config = ModelConfig(
            architecture=architecture,
            num_layers=self._int("block_count"),
            hidden=hidden,
            inner=self._int("feed_forward_length"),
            q_heads=q_heads,
            kv_heads=self._int("attention.head_count_kv", q_heads),
            head_dim=head_dim,
            vocab_size=self._vocab_size(),
            context_length=min(context, window) if window > 0 else context,
            rms_eps=self._float("attention.layer_norm_rms_epsilon"),
            rope=self._rope(),
            tied_embeddings=_TOP["lm_head"] not in self.file.tensors,
            qkv_bias="blk.0.attn_q.bias" in self.file.tensors,
            qk_norm="blk.0.attn_q_norm.weight" in self.file.tensors,
        )
        return check(config, self.file.path)

    def _architecture(self) -> Architecture:
        name = self.file.values.get("general.architecture")
        for known in _ARCHITECTURES:
            if name == known:
                return known
        raise self._fault(f"architecture {name!r}", f"one of {', '.join(_ARCHITECTURES)}")

    def _refuse_unsupported(self) -> None:
        scaling = self._get("rope.scaling.type")
        if scaling not in (None, "none", "linear"):
            raise self._fault(f"RoPE scaling {scaling!r}", "none, linear or llama3")
        if self._int("expert_count", 0):
            raise self._fault(f"{self._int('expert_count')} experts", "a dense model")
        for key in ("attention.scale", "logit_scale", "attn_logit_softcapping"):
            if self._get(key):
                raise self._fault(f"{key} {self._get(key)}", "none")

    def _rope(self) -> Rope:
        divisors = None
        found = self.file.tensors.get(_ROPE_DIVISORS)
        if found is not None:
            if len(found.shape) != 1:
                raise self._fault(f"{_ROPE_DIVISORS} of shape {found.shape}", "a vector")
            divisors = tuple(float(x) for x in self.file.dequantised(found, 0, 1)[0])
        linear = self._get("rope.scaling.type") == "linear"
        factor = self._float("rope.scaling.factor", 1.0) if linear else 1.0
        theta = self._float("rope.freq_base", 10_000.0)
        return Rope(theta=theta, linear_factor=factor, divisors=divisors)

    def _vocab_size(self) -> int:
        embed = self.file.tensors.get(_TOP["embed"])
        return embed.shape[0] if embed is not None else 0

    def _check_tensors(self) -> None:
        wanted = {_file_name(name): shape for name, shape in self._shapes().items()}
        for name, shape in wanted.items():
            tensor = self.file.tensors.get(name)
            if tensor is None:
                raise self._fault("no tensor " + repr(name), "a complete model file")
            if tensor.shape != shape:
                raise self._fault(f"{name!r} of shape {tensor.shape}", f"{shape}")
        extra = sorted(set(self.file.tensors) - set(wanted) - {_ROPE_DIVISORS})
        if extra:
            # A tensor left out would be a silently different model.
            raise self._fault(f"{len(extra)} unknown tensors, {extra[0]!r} first", "none")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        if self.config.num_layers > len(self.file.tensors):
            raise self._fault(f"{self.config.num_layers} layers", "tensors for all of them")
        divisors = self.config.rope.divisors
        if divisors is not None and len(divisors) != self.config.head_dim // 2:
            raise self._fault(f"{len(divisors)} RoPE factors", f"{self.config.head_dim // 2}")
        return expected_shapes(self.config)

    def _get(self, key: str) -> int | float | bool | str | GgufArray | None:
        return self.file.values.get(f"{self.file.values.get('general.architecture')}.{key}")

    def _int(self, key: str, default: int | None = None) -> int:
        return integer(self.file.path, key, self._get(key), default)

    def _float(self, key: str, default: float | None = None) -> float:
        return real(self.file.path, key, self._get(key), default)

    def _fault(self, got: str, need: str) -> UsageError:
        return unservable(self.file.path, got, need)


def _file_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    index, _, part = name.partition(".")
    return f"blk.{index}.{_LAYER[part]}"


def _unpermuted(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Return rows in Hugging Face's order, halves of a head instead of interleaved pairs."""
    rows, columns = weight.shape
    heads = weight.reshape(rows // head_dim, head_dim // 2, 2, columns)
    return heads.transpose(1, 2).reshape(rows, columns)
