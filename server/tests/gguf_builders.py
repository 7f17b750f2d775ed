"""Builders of small GGUF files, written by the `gguf` package: an independent writer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [
    "<|end|>",
    "<|start|>",
    "<|user|>",
    *"abcdefghijklmnopqrstuvwxyz0123456789",
    "Ġ",
    "ab",
    "Ġab",
]
MERGES = ["a b", "Ġ ab"]


def write_llama(path: Path, model: Any, *, architecture: str = "llama", **extra_keys: Any) -> Path:
    """Write a transformers Llama or Qwen as llama.cpp's converter would, Q and K permuted for llama."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), architecture)
    keys = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
    }
    for key, value in keys.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{architecture}.rope.freq_base", config.rope_parameters["rope_theta"])
    for key, value in extra_keys.items():
        name = f"{architecture}.{key.replace('__', '.')}"
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](name, value)
    add_tokenizer(writer, config.vocab_size)
    for name, tensor in tensors_of(model, permuted=architecture == "llama").items():
        writer.add_tensor(name, tensor)
    return finish(writer, path)


def add_tokenizer(writer: gguf.GGUFWriter, size: int, **changes: Any) -> None:
    """Add a small byte-level BPE vocabulary, padded to `size`."""
    tokens = [*TOKENS, *(f"<|pad{n}|>" for n in range(size - len(TOKENS)))]
    writer.add_tokenizer_model(changes.get("model", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list(tokens)
    writer.add_token_merges(changes.get("merges", MERGES))
    kinds = [3 if token.startswith("<|") else 1 for token in tokens]
    writer.add_token_types(changes.get("kinds", kinds))
    writer.add_eos_token_id(changes.get("eos", 0))
    writer.add_bos_token_id(1)
    if "add_bos" in changes:
        writer.add_add_bos_token(changes["add_bos"])
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}")


def finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Write everything out and return the path."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tensors_of(model: Any, *, permuted: bool) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Return a model's tensors by llama.cpp's names."""
    names = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    top = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}
    heads = {"q": model.config.num_attention_heads, "k": model.config.num_key_value_heads}
    found = {}
    for name, tensor in model.state_dict().items():
        value = tensor.float().numpy().copy()
        stem, _, kind = name.removeprefix("model.").rpartition(".")
        if stem in top:
            if stem == "lm_head" and model.config.tie_word_embeddings:
                continue
            found[f"{top[stem]}.{kind}"] = value
            continue
        _, index, part = stem.split(".", 2)
        if permuted and part[-6:] in ("q_proj", "k_proj"):
            value = interleaved(value, heads[part[-6]])
        found[f"blk.{index}.{names[part]}.{kind}"] = value
    return found


def interleaved(
    value: np.ndarray[Any, np.dtype[np.float32]], heads: int
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return rows as llama.cpp stores them: (0, half, 1, half + 1, ...) of every head."""
    rows = value.shape[0] // heads
    order = [
        head * rows + pair + half
        for head in range(heads)
        for pair in range(rows // 2)
        for half in (0, rows // 2)
    ]
    return value[order]
