"""`--deterministic`: logits keep every bit whatever the batch, the chunks and the cached prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from model_builders import Engine, open_engine, prompt, reference_logits, row, save_random

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = prompt(150, seed=20)
PAGES = list(range(1, 11))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("invariant")
    save_random(path, "Llama", head_dim=20)
    return path


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=str)
def engine(folder: Path, request: pytest.FixtureRequest) -> Engine:
    return open_engine(folder, page_size=16, dtype=request.param, invariant=True)


@pytest.mark.parametrize("cuts", [(1,), (16,), (17, 40), (149,), (100, 48, 1), (128,)])
def test_given_a_prompt_when_it_is_cut_and_batched_then_its_logits_keep_every_bit(
    cuts: tuple[int, ...], engine: Engine
) -> None:
    alone = engine.logits(row(TOKENS, PAGES))[0]
    start = 0
    for step, size in enumerate((*cuts, 150 - sum(cuts))):
        neighbours = [row(prompt(n, seed=n), [20 + n, 60 + n, 120 + n]) for n in range(1, 31, 9)]
        own = row(TOKENS[start : start + size], PAGES, start=start)
        found = engine.logits(*neighbours[:step], own, *neighbours[step:])[step]
        start += size
    assert torch.equal(found, alone)


def test_given_the_invariant_mode_when_a_prompt_is_computed_then_logits_equal_transformers(
    folder: Path,
) -> None:
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    engine = open_engine(folder, page_size=16, invariant=True)
    expected = reference_logits(theirs, TOKENS)[-1:]
    torch.testing.assert_close(engine.logits(row(TOKENS, PAGES)), expected, rtol=2e-5, atol=2e-5)
