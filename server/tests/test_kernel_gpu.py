"""On a GPU only: captured decode steps equal launched ones, and the first request compiles nothing.

Kernels against their references are in kernel_parity.py, which test_kernel_launch.py starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from gguf_builders import write_llama
from model_builders import prompt, row, save_random

from rampway_server.engine.batch import Batch, Sampling
from rampway_server.model import LoadOptions, load

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no CUDA device: decode graphs are not run on a GPU"
    ),
]


def test_given_a_gpu_when_decode_steps_are_replayed_then_they_equal_launched_ones(
    tmp_path: Path,
) -> None:
    path = write_llama(tmp_path / "small.gguf", save_random(tmp_path, "Llama"))
    model = load(path, LoadOptions(device="cuda", dtype="float32", num_pages=80, max_num_seqs=8))
    asked = Sampling(temperature=0.0, logprobs=5)
    steps = [
        Batch(0, tuple(row(prompt(20, seed=n), [2 * n + 1, 2 * n + 2]) for n in range(5))),
        Batch(
            1, tuple(row([7], [2 * n + 1, 2 * n + 2], start=20, sampling=asked) for n in range(5))
        ),
    ]
    launched = [model.runner.run(step) for step in steps]
    model.runner.warm_up()
    replayed = [model.runner.run(step) for step in steps]
    for own, other in zip(replayed[1].samples, launched[1].samples, strict=True):
        assert own is not None
        assert other is not None
        assert own.token == other.token
        assert own.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_given_a_warm_model_when_requests_of_every_kind_come_then_nothing_is_compiled(
    tmp_path: Path,
) -> None:
    from triton import knobs

    path = write_llama(tmp_path / "small.gguf", save_random(tmp_path, "Llama"))
    runner = load(path, LoadOptions(device="cuda", num_pages=80, max_num_seqs=8)).runner
    runner.warm_up()
    compiled: list[str] = []
    knobs.compilation.listener = lambda *, src, **_: compiled.append(src.name)
    try:
        runner.run(Batch(0, (row(prompt(20), [1, 2]), row(prompt(3), [3]))))
        drawn = Sampling(temperature=0.9, top_p=0.9, top_k=9, repetition_penalty=1.2)
        runner.run(Batch(1, (row([7], [1, 2], start=20, sampling=drawn), row(prompt(5), [4]))))
    finally:
        knobs.compilation.listener = None
    assert compiled == []
