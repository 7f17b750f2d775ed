"""Whole models in GGUF against transformers, and every GGUF that must be refused in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import torch
from gguf_builders import add_tokenizer, finish, tensors_of, write_llama
from model_builders import LLAMA3_SCALING, open_engine, prompt, reference_logits, row, save_random

from rampway_server.errors import UsageError
from rampway_server.model import inspect

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("kind", "architecture", "changes"),
    [
        ("Llama", "llama", {"tie_word_embeddings": True}),
        ("Llama", "llama", {"tie_word_embeddings": False, "num_key_value_heads": 6}),
        ("Qwen2", "qwen2", {}),
        ("Qwen3", "qwen3", {"head_dim": 8}),
    ],
)
def test_given_a_converted_model_when_a_prompt_is_computed_then_logits_equal_transformers(
    kind: str, architecture: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = save_random(tmp_path, kind, **changes)
    engine = open_engine(write_llama(tmp_path / "m.gguf", model, architecture=architecture))
    tokens = prompt(30)
    found = engine.logits(row(tokens, list(range(1, 10))))
    expected = reference_logits(model, tokens)[-1:]
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_given_llama3_frequencies_as_a_tensor_when_loaded_then_logits_equal_transformers(
    tmp_path: Path,
) -> None:
    model = save_random(tmp_path, "Llama", rope_parameters=LLAMA3_SCALING)
    inverse = model.model.rotary_emb.inv_freq.numpy()
    plain = 1.0 / 500_000.0 ** (np.arange(0, 8, 2, dtype=np.float32) / 8)
    extra = {"rope_freqs.weight": (plain / inverse).astype(np.float32)}
    engine = open_engine(write_with(tmp_path / "m.gguf", model, extra))
    tokens = prompt(60)
    expected = reference_logits(model, tokens)[-1:]
    found = engine.logits(row(tokens, list(range(1, 17))))
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return save_random(tmp_path_factory.mktemp("small"), "Llama", num_hidden_layers=1)


@pytest.mark.parametrize(
    ("architecture", "keys", "complaint"),
    [
        ("gemma3", {}, "architecture 'gemma3'.*need one of llama, qwen2, qwen3"),
        ("llama", {"rope__scaling__type": "yarn"}, "RoPE scaling 'yarn'"),
        ("llama", {"expert_count": 8}, "8 experts"),
        ("llama", {"rope__dimension_count": 4}, "rope.dimension_count 4.*head size 8"),
        ("llama", {"attention__key_length": 7}, "value 7|shape|head size 7"),
        ("llama", {"logit_scale": 2.0}, "logit_scale 2.0"),
    ],
)
def test_given_a_model_that_would_be_wrong_when_inspected_then_it_is_refused_by_name(
    architecture: str, keys: dict[str, Any], complaint: str, small: Any, tmp_path: Path
) -> None:
    path = write_llama(tmp_path / "m.gguf", small, architecture=architecture, **keys)
    assert_refused(path, complaint)


def test_given_a_sliding_window_when_inspected_then_the_context_ends_with_it(
    small: Any, tmp_path: Path
) -> None:
    path = write_llama(tmp_path / "m.gguf", small, attention__sliding_window=64)
    assert inspect(path).context_length == 64


def test_given_a_tensor_that_is_missing_extra_or_misshapen_when_inspected_then_it_is_named(
    small: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    assert_refused(
        write_with(path, small, {"blk.0.ffn_up.weight": None}), "no tensor 'blk.0.ffn_up"
    )
    ones = np.ones(4, np.float32)
    assert_refused(write_with(path, small, {"blk.0.attn_sinks.weight": ones}), "attn_sinks")
    assert_refused(write_with(path, small, {"output_norm.weight": ones}), r"shape \(4,\).*\(48,\)")
    assert_refused(write_with(path, small, {"rope_freqs.weight": ones[:3]}), "3 RoPE factors")


def test_given_a_type_that_is_not_read_when_inspected_then_it_is_named(
    small: Any, tmp_path: Path
) -> None:
    bad = {"output_norm.weight": np.ones(48, np.int32)}
    assert_refused(write_with(tmp_path / "m.gguf", small, bad), "type I32: need one of F32")


def write_with(path: Path, model: Any, changes: dict[str, Any]) -> Path:
    """Write `model` with tensors replaced, added, or left out where the change is None."""
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    add_tokenizer(writer, config.vocab_size)
    for name, tensor in (tensors_of(model, permuted=True) | changes).items():
        if tensor is not None:
            writer.add_tensor(name, tensor)
    return finish(writer, path)


def assert_refused(path: Path, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        inspect(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
