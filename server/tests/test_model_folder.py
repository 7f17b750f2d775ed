"""Hugging Face folders that must be refused in one line, and the sizes config.json may give."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

import pytest
from model_builders import save_random

from rampway_server.errors import UsageError
from rampway_server.model import inspect
from rampway_server.model.source import open_source

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_random(tmp_path, "Llama", num_hidden_layers=1)
    return tmp_path


def change(folder: Path, **keys: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | keys
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def test_given_a_folder_when_inspected_then_the_facts_are_its_own(folder: Path) -> None:
    facts = inspect(folder)
    assert (facts.format, facts.architecture, facts.vocab_size) == ("safetensors", "llama", 97)
    assert facts.context_length == 256
    assert facts.tensor_types == {"F32": 12}
    assert facts.weight_bytes == 4 * facts.num_parameters


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"model_type": "gemma3"}, "model_type 'gemma3', need one of llama, mistral, qwen2, qwen3"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "RoPE scaling 'yarn'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor missing"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}, "RoPE scaling 'dynamic'"),
        ({"rope_parameters": [1]}, "RoPE parameters"),
        ({"rope_parameters": {"rope_theta": float("inf")}}, "rope_theta inf"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"quantization_config": "x"}, "quantised by"),
        ({"num_hidden_layers": 2}, "no tensor 'model.layers.1"),
        ({"num_hidden_layers": 10**9}, "layers"),
        ({"num_hidden_layers": 0}, "layers 0"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers '3', need a number"),
        ({"vocab_size": 98}, r"of shape \(97, 48\), need \(98, 48\)"),
        ({"hidden_size": None}, "hidden_size missing"),
        ({"num_attention_heads": 0}, "query heads 0"),
        ({"num_key_value_heads": 4}, "multiple of 4"),
        ({"head_dim": 7}, "head size 7"),
        ({"rms_norm_eps": 2.0}, "epsilon 2.0"),
    ],
)
def test_given_a_config_that_would_be_wrong_when_inspected_then_the_key_is_named(
    keys: dict[str, Any], complaint: str, folder: Path
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        inspect(change(folder, **keys))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "context"),
    [
        ({"sliding_window": 64}, 256),  # llama has none
        ({"model_type": "mistral", "sliding_window": 64}, 64),
        ({"model_type": "mistral", "sliding_window": None}, 256),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": False}, 256),
        ({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}, 64),
    ],
)
def test_given_a_sliding_window_when_inspected_then_the_context_ends_with_it(
    keys: dict[str, Any], context: int, folder: Path
) -> None:
    assert open_source(change(folder, **keys)).config.context_length == context


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"\xff" * 8, "no complete safetensors file"),
        (struct.pack("<Q", 50) + b"{}", "no complete safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "no JSON object"),
        (struct.pack("<Q", 2) + b"{{", "not JSON"),
        (struct.pack("<Q", 60_000) + b"[" * 60_000, "not JSON"),
    ],
)
def test_given_a_broken_weight_file_when_inspected_then_it_is_one_line(
    content: bytes, complaint: str, folder: Path
) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=complaint):
        inspect(folder)


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}, "as F64: need one of F32"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "truncated or broken"),
        ({"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}, "truncated or broken"),
        ({"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "truncated or broken"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}, "wrongly"),
        ({"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]}, "wrongly"),
        ({"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}, "wrongly|need one of"),
        ({"dtype": "F32"}, "wrongly"),
        ("x", "wrongly"),
    ],
)
def test_given_a_hostile_tensor_entry_when_inspected_then_it_is_named(
    entry: object, complaint: str, folder: Path
) -> None:
    head = json.dumps({"t": entry}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(64))
    with pytest.raises(UsageError, match=complaint):
        inspect(folder)


def test_given_a_weight_file_cut_short_when_inspected_then_it_is_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match="truncated"):
        inspect(folder)


def test_given_a_shard_index_when_a_shard_is_missing_or_outside_then_it_is_refused(
    tmp_path: Path,
) -> None:
    save_random(tmp_path, "Llama", sharded=True)
    index = tmp_path / "model.safetensors.index.json"
    kept = index.read_text()
    for file, complaint in (
        ("../x.safetensors", "need a file of this folder"),
        ("y.safetensors", "cannot be read"),
    ):
        weights = json.loads(kept)["weight_map"]
        weights[min(weights)] = file
        index.write_text(json.dumps({"weight_map": weights}))
        with pytest.raises(UsageError, match=complaint):
            inspect(tmp_path)
    index.write_text("{}")
    with pytest.raises(UsageError, match="no weight_map"):
        inspect(tmp_path)
    index.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="not JSON"):
        inspect(tmp_path)


def test_given_config_without_weights_when_inspected_then_the_missing_file_is_named(
    folder: Path,
) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no model\.safetensors"):
        inspect(folder)
