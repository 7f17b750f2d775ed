"""The real model (SmolLM2-135M-Instruct, GGUF): logits and tokens against transformers, and text."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from model_builders import GREEDY, open_engine, reference_logits, row

from rampway_server.engine.batch import Batch, Row
from rampway_server.model import LoadedModel, LoadOptions, inspect, load
from rampway_server.model.source import open_source

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODEL = Path(os.environ.get("RAMPWAY_MODEL") or Path.home() / ".cache/rampway/models/smollm2.gguf")
TEXT = (
    "The capital of France is Paris. In 1998, 32 teams played football there;\n\n  it ended 3:0. "
    "Ünïcödé 你好 👍🏽 \t tabs   and spaces\r\nnewline don't I'll we've   "
)

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not MODEL.is_file(), reason=f"no real model at {MODEL}: run python e2e/real_model.py"
    ),
]


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    options = LoadOptions(dtype="float32", num_pages=128, context_length=1024, threads=1)
    return load(MODEL, options)


def test_given_the_real_model_when_prompts_are_computed_then_fp32_logits_equal_transformers() -> (
    None
):
    theirs = transformers_model()
    ours = open_engine(MODEL, page_size=16, pages=64)
    tokens = open_source(MODEL).tokenizer().encode(TEXT)
    expected = reference_logits(theirs, tokens)
    pages = list(range(1, 9))
    errors = []
    for cut in (1, 5, 16, 17, len(tokens)):
        found = ours.logits(row(tokens[:cut], pages))
        errors.append(float((found[0] - expected[cut - 1]).abs().max()))
    assert max(errors) < 2e-4, errors


def test_given_the_real_vocabulary_when_text_is_encoded_then_ids_equal_transformers() -> None:
    from transformers import AutoTokenizer

    ours = open_source(MODEL)
    theirs = AutoTokenizer.from_pretrained(str(MODEL.parent), gguf_file=MODEL.name)
    tokenizer = ours.tokenizer()
    for text in (TEXT, "plain words only", " leading", "tail "):
        assert tokenizer.encode(text) == theirs(text)["input_ids"]
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_given_the_real_model_when_a_question_is_asked_then_the_answer_is_right(
    loaded: LoadedModel,
) -> None:
    assert generate(loaded, "What is the capital of France?", 12).startswith(
        "The capital of France is Paris."
    )


def test_given_the_real_file_when_it_is_inspected_then_the_facts_are_its_own() -> None:
    facts = inspect(MODEL)
    assert (facts.architecture, facts.context_length, facts.vocab_size) == ("llama", 8192, 49152)
    assert facts.tensor_types == {"Q4_1": 210, "Q8_0": 1, "F32": 61}
    assert facts.num_parameters == 134_515_008


def generate(loaded: LoadedModel, question: str, count: int) -> str:
    tokenizer = loaded.tokenizer
    prompt = tokenizer.encode(tokenizer.render_chat([{"role": "user", "content": question}]))
    pages: NDArray[np.int32] = np.arange(1, 20, dtype=np.int32)
    tokens, at = list(prompt), 0
    drawn: list[int] = []
    for step in range(count):
        request = Row(np.array(tokens, np.int32), at, pages, GREEDY)
        (sample,) = loaded.runner.run(Batch(step, (request,))).samples
        assert sample is not None
        drawn.append(sample.token)
        at += len(tokens)
        tokens = [sample.token]
    return tokenizer.decode(drawn)


def transformers_model() -> Any:
    """Return transformers' own reading of the same file, in fp32."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.initialization import no_init_weights
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = LlamaConfig(**load_gguf_checkpoint(str(MODEL))["config"])
    config._attn_implementation = "eager"
    with no_init_weights():
        model = LlamaForCausalLM(config)
    stored = load_gguf_checkpoint(str(MODEL), return_tensors=True, model_to_load=model)
    missing = model.load_state_dict(stored["tensors"], strict=False)
    assert missing.missing_keys == ["lm_head.weight"]  # tied
    model.tie_weights()
    return model.to(torch.float32).eval()
