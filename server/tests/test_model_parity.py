"""Our fp32 logits against transformers: every architecture, every way to cut a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from model_builders import (
    LLAMA3_SCALING,
    Engine,
    open_engine,
    prompt,
    reference_logits,
    row,
    save_random,
)

if TYPE_CHECKING:
    from pathlib import Path

TOLERANCE = 2e-5  # of logits of size 1 to 30: fp32 sums in another order

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama without groups": ("Llama", {"num_key_value_heads": 6}),
    "llama with one key head": ("Llama", {"num_key_value_heads": 1}),
    "llama with a wide head": ("Llama", {"head_dim": 16}),
    "llama in shards": ("Llama", {"sharded": True}),
    "llama 3 scaling": ("Llama", {"rope_parameters": LLAMA3_SCALING}),
    "linear scaling": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "mistral": ("Mistral", {"sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"head_dim": 8}),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Engine, Any]:
    folder = tmp_path_factory.mktemp("llama")
    model = save_random(folder, "Llama")
    return open_engine(folder), model


@pytest.mark.parametrize("case", CASES)
def test_given_an_architecture_when_a_prompt_is_computed_then_logits_equal_transformers(
    case: str, tmp_path: Path
) -> None:
    kind, changes = CASES[case]
    model = save_random(tmp_path, kind, **changes)
    engine = open_engine(tmp_path)
    tokens = prompt(45)
    expected = reference_logits(model, tokens)
    pages = list(range(5, 17))
    assert_close(engine.logits(row(tokens[:40], pages)), expected[39:40])
    for at in range(40, 45):
        assert_close(
            engine.logits(row(tokens[at : at + 1], pages, start=at)), expected[at : at + 1]
        )


@pytest.mark.parametrize("cuts", [(1,), (3, 1), (4,), (5,), (7, 2, 9), (4, 4, 4), (16, 1, 1)])
def test_given_a_prompt_cut_anywhere_when_chunks_are_computed_then_logits_equal_the_whole(
    cuts: tuple[int, ...], llama: tuple[Engine, Any]
) -> None:
    engine, model = llama
    tokens = prompt(33, seed=len(cuts))
    pages = [9, 3, 40, 7, 8, 1, 2, 30, 31]  # in no order
    start = 0
    for size in (*cuts, 33 - sum(cuts)):
        found = engine.logits(row(tokens[start : start + size], pages, start=start))
        start += size
    assert_close(found, reference_logits(model, tokens)[-1:])


def test_given_a_shared_prefix_when_two_sequences_extend_it_then_both_equal_the_whole(
    llama: tuple[Engine, Any],
) -> None:
    engine, model = llama
    shared, first, second = prompt(8, seed=1), prompt(5, seed=2), prompt(11, seed=3)
    engine.logits(row(shared, [10, 11]))
    found = engine.logits(
        row(first, [10, 11, 12, 13], start=8), row(second, [10, 11, 20, 21, 22], start=8)
    )
    assert_close(found[:1], reference_logits(model, shared + first)[-1:])
    assert_close(found[1:], reference_logits(model, shared + second)[-1:])


def test_given_a_mixed_batch_when_one_step_runs_then_every_row_equals_the_row_alone(
    llama: tuple[Engine, Any],
) -> None:
    engine, model = llama
    long, short, single, chunked = (
        prompt(21, seed=4),
        prompt(4, seed=5),
        prompt(1, seed=6),
        prompt(13, seed=7),
    )
    engine.logits(row(long[:20], [50, 51, 52, 53, 54, 55]))
    engine.logits(row(chunked[:5], [60, 61, 62, 63]))
    found = engine.logits(
        row(short, [70, 71]),
        row(long[20:], [50, 51, 52, 53, 54, 55], start=20),
        row(chunked[5:9], [60, 61, 62, 63], start=5, sampling=None),
        row(single, [80]),
    )
    expected = [reference_logits(model, tokens)[-1:] for tokens in (short, long, single)]
    assert_close(found, torch.cat(expected))
    last = engine.logits(row(chunked[9:], [60, 61, 62, 63], start=9))
    assert_close(last, reference_logits(model, chunked)[-1:])


def test_given_a_batch_that_samples_nothing_when_it_runs_then_only_its_kv_is_written(
    llama: tuple[Engine, Any],
) -> None:
    engine, model = llama
    tokens = prompt(9, seed=8)
    assert engine.logits(row(tokens[:8], [90, 91, 92], sampling=None)).shape == (0, 97)
    assert_close(
        engine.logits(row(tokens[8:], [90, 91, 92], start=8)), reference_logits(model, tokens)[-1:]
    )


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
