"""The runner as the engine sees it: loading by options, steps, warm-up, limits and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_builders import write_llama
from model_builders import GREEDY, prompt, row, save_random

from rampway_server.engine.batch import Batch, Sampling
from rampway_server.errors import UsageError
from rampway_server.model import LoadedModel, LoadOptions, load
from rampway_server.model.machine import available_cpus, available_memory_bytes


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runner")
    return write_llama(folder / "small.gguf", save_random(folder, "Llama"))


def loaded(path: Path, **options: Any) -> LoadedModel:
    return load(
        path, LoadOptions(**({"threads": 1, "num_pages": 80, "dtype": "float32"} | options))
    )


def test_given_a_model_when_loaded_then_limits_and_facts_are_known(path: Path) -> None:
    model = loaded(path, page_size=8, context_length=128)
    limits = model.runner.limits
    assert (limits.num_pages, limits.page_size) == (80, 8)
    assert (limits.context_length, limits.vocab_size) == (128, 97)
    assert model.model_id == "small"
    assert model.info["dtype"] == "float32"
    assert model.info["kernels"] == "reference"
    assert model.info["kv_bytes_per_token"] == 2 * 3 * 2 * 8 * 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"context_length": 257}, "--context-length cannot be used: got 257, need 1 to 256"),
        ({"context_length": 0}, "need 1 to 256"),
        ({"page_size": 0}, "--page-size"),
        ({"num_pages": 16, "context_length": 256}, "got 16 pages, need 17"),
        ({"num_pages": 1}, "got 1 pages, need 2"),
        ({"num_pages": 10**12}, "does not fit"),
        ({"num_pages": None, "mem_fraction": 1e-12}, "too small"),
        ({"kernels": "triton"}, "TRITON_INTERPRET|cannot run on cpu"),
        ({"device": "cuda"}, "no CUDA device"),
    ],
)
def test_given_options_that_cannot_be_when_loaded_then_one_line_says_what_can(
    options: dict[str, Any], complaint: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if options.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    with pytest.raises(UsageError, match=complaint):
        loaded(path, **options)


def test_given_a_pool_smaller_than_the_context_when_loaded_then_the_context_is_cut(
    path: Path,
) -> None:
    assert loaded(path, num_pages=11).runner.limits.context_length == 160


def test_given_no_page_count_when_loaded_then_the_pool_holds_every_sequence(path: Path) -> None:
    model = loaded(path, num_pages=None, max_num_seqs=3)
    assert model.runner.limits.num_pages == 3 * 16 + 1


def test_given_a_mixed_step_when_run_then_samples_stand_in_row_order(path: Path) -> None:
    runner = loaded(path).runner
    prompts = [prompt(5, seed=1), prompt(1, seed=2), prompt(9, seed=3)]
    pages = [[1], [2], [3]]
    alone = [
        runner.run(Batch(0, (row(tokens, own),))).samples[0]
        for tokens, own in zip(prompts, pages, strict=True)
    ]
    rows = [row(tokens, own) for tokens, own in zip(prompts, pages, strict=True)]
    rows.insert(1, row(prompt(4), [4], sampling=None))
    result = runner.run(Batch(1, tuple(rows)))
    assert result.samples == (alone[0], None, alone[1], alone[2])
    assert runner.run(Batch(2, ())).samples == ()


def test_given_int32_inputs_when_run_then_sampling_follows_the_row(path: Path) -> None:
    runner = loaded(path, dtype="bfloat16").runner
    wanted = Sampling(temperature=0.0, logprobs=2, logit_bias=((42, 1000.0),))
    (sample,) = runner.run(Batch(0, (row(prompt(3), [1], sampling=wanted),))).samples
    assert sample is not None
    assert sample.token == 42
    assert len(sample.top) == 2
    assert sample.top[0][1] >= sample.top[1][1]


def test_given_warm_up_when_it_ran_then_no_page_but_the_null_page_was_written(path: Path) -> None:
    runner: Any = loaded(path, max_num_seqs=5, max_num_batched_tokens=64).runner
    before = runner.longest_step_seconds(64)
    runner.warm_up()
    for pool in (*runner._pool.keys, *runner._pool.values):
        assert not pool[1:].any()
    assert runner.longest_step_seconds(64) > 10.0
    assert runner.longest_step_seconds(64) < before + 60


def test_given_warm_up_when_a_sequence_runs_after_it_then_nothing_changed(path: Path) -> None:
    fresh, warm = loaded(path).runner, loaded(path).runner
    warm.warm_up()
    step = Batch(0, (row(prompt(20), [1, 2], sampling=Sampling(temperature=0.0, logprobs=5)),))
    assert fresh.run(step) == warm.run(step)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_given_a_half_precision_dtype_when_run_then_logits_are_near_float32(
    dtype: str, path: Path
) -> None:
    asked = Sampling(temperature=0.0, logprobs=97)
    step = Batch(0, (row(prompt(20), [1, 2], sampling=asked),))
    exact, near = (
        loaded(path, dtype=name).runner.run(step).samples[0] for name in ("float32", dtype)
    )
    assert exact is not None
    assert near is not None
    theirs = dict(exact.top)
    worst = max(abs(theirs[token] - value) for token, value in near.top)
    assert worst < (0.05 if dtype == "float16" else 0.4)


def test_given_deterministic_when_loaded_then_batches_do_not_change_the_draw(path: Path) -> None:
    runner = loaded(path, deterministic=True, dtype="bfloat16").runner
    asked = Sampling(temperature=1.0, seed=5, logprobs=3)
    own = row(prompt(40, seed=9), [1, 2, 3], sampling=asked)
    alone = runner.run(Batch(0, (own,))).samples[0]
    others = tuple(row(prompt(n, seed=n), [10 + n], sampling=GREEDY) for n in range(1, 9))
    assert runner.run(Batch(1, (*others, own))).samples[-1] == alone


def test_given_container_limits_when_the_machine_is_read_then_the_smaller_counts(
    tmp_path: Path,
) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert available_cpus(tmp_path) == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cpus(tmp_path) == available_cpus(tmp_path / "none") >= 1
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    assert available_memory_bytes(tmp_path, meminfo) == 50 * 1024
    (tmp_path / "memory.max").write_text("30000\n")
    (tmp_path / "memory.current").write_text("10000\n")
    assert available_memory_bytes(tmp_path, meminfo) == 20_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory_bytes(tmp_path, meminfo) == 50 * 1024


def test_given_page_ids_of_a_table_row_when_run_then_int32_views_are_taken(path: Path) -> None:
    runner = loaded(path).runner
    table = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    plain = runner.run(Batch(0, (row(prompt(40), [5, 6, 7, 8]),)))
    view = row(prompt(40), [5, 6, 7, 8])
    object.__setattr__(view, "pages", table[1])
    assert runner.run(Batch(1, (view,))) == plain
