"""Decode steps through captured graphs: which steps take one, what padding touches, equal results.

The graph API here is a stand-in that replays by computing again into the captured memory, as a
CUDA graph does. That a GPU may capture the model's kernels is for the tests marked gpu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from model_builders import open_engine, prompt, row, save_random

from rampway_server.engine.batch import Batch, Row, Sampling
from rampway_server.model.decode_graphs import Bucket, DecodeGraphs, buckets
from rampway_server.model.runner import TorchRunner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ASKED = Sampling(temperature=0.0, logprobs=4)
SHAPES = buckets(6, 12)


class Replayed:
    """Captures by remembering the function and its output's memory; counts what happened."""

    def __init__(self) -> None:
        self.captures = self.replays = 0

    def capture(
        self, compute: Callable[[], torch.Tensor]
    ) -> tuple[Callable[[], None], torch.Tensor]:
        self.captures += 1
        out = compute().clone()

        def replay() -> None:
            self.replays += 1
            out.copy_(compute())

        return replay, out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs")
    save_random(path, "Llama", num_hidden_layers=2)
    return path


def runner_of(folder: Path, api: Replayed | None) -> TorchRunner:
    engine = open_engine(folder, page_size=4, pages=64)
    graphs = None if api is None else DecodeGraphs(engine.model, engine.pool, SHAPES, api, "cpu")
    sizes: dict[str, Any] = {"context_length": 48, "max_num_seqs": 6, "max_num_batched_tokens": 32}
    return TorchRunner(engine.model, engine.pool, device="cpu", graphs=graphs, **sizes)


def sequences(count: int) -> list[Row]:
    return [
        row(prompt(3 + n, seed=n), [1 + 3 * n, 2 + 3 * n, 3 + 3 * n], sampling=ASKED)
        for n in range(count)
    ]


def decodes(count: int) -> list[Row]:
    return [
        row([5 + n], [1 + 3 * n, 2 + 3 * n, 3 + 3 * n], start=3 + n, sampling=ASKED)
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6])
def test_given_a_decode_step_when_it_is_replayed_then_it_equals_the_step_without_graphs(
    count: int, folder: Path
) -> None:
    api = Replayed()
    plain, graphed = runner_of(folder, None), runner_of(folder, api)
    graphed.warm_up()
    for runner in (plain, graphed):
        runner.run(Batch(0, tuple(sequences(count))))
    assert api.replays == 0
    for step in (1, 2):
        expected = plain.run(Batch(step, tuple(decodes(count)[::-1]))).samples
        found = graphed.run(Batch(step, tuple(decodes(count)[::-1]))).samples
        assert api.replays == step
        for own, other in zip(found, expected, strict=True):
            assert own is not None
            assert other is not None
            assert own.token == other.token
            assert own.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_given_a_larger_step_before_when_a_smaller_one_is_padded_then_nothing_of_it_is_left(
    folder: Path,
) -> None:
    api = Replayed()
    runner = runner_of(folder, api)
    runner.warm_up()
    runner.run(Batch(0, tuple(sequences(6))))
    runner.run(Batch(1, tuple(decodes(4))))
    pools = [*runner._pool.keys, *runner._pool.values]
    before = [pool.clone() for pool in pools]
    runner.run(Batch(2, tuple(decodes(3))))
    assert api.replays == 2
    own = {int(page) for one in decodes(3) for page in one.pages}
    others = [page for page in range(1, 64) if page not in own]
    for pool, old in zip(pools, before, strict=True):
        assert torch.equal(pool[others], old[others])


def test_given_steps_that_no_graph_fits_when_run_then_they_are_computed_as_before(
    folder: Path,
) -> None:
    api = Replayed()
    runner = runner_of(folder, api)
    runner.warm_up()
    chunk = row(prompt(4), [50], sampling=ASKED)
    silent = row([7], [51], start=0, sampling=None)
    for rows in ([chunk, *decodes(2)], [silent, *decodes(2)], [silent]):
        assert len(runner.run(Batch(0, tuple(rows))).samples) == len(rows)
    assert api.replays == 0


def test_given_warm_up_when_it_is_over_then_every_shape_is_captured_and_no_page_is_written(
    folder: Path,
) -> None:
    api = Replayed()
    runner = runner_of(folder, api)
    runner.warm_up()
    assert api.captures == len(SHAPES)
    for pool in (*runner._pool.keys, *runner._pool.values):
        assert not pool[1:].any()
    runner.run(Batch(0, tuple(decodes(6))))
    assert api.captures == len(SHAPES)


def test_given_limits_when_shapes_are_chosen_then_every_small_step_has_one_and_large_ones_none() -> (
    None
):
    assert buckets(1, 1) == (Bucket(1, 1),)
    assert set(buckets(6, 100)) == {Bucket(r, p) for r in (1, 2, 4, 6) for p in (64, 100)}
    large = buckets(256, 8192)
    assert Bucket(256, 256) in large
    assert Bucket(8, 8192) in large
    assert all(bucket.rows * bucket.pages <= 65_536 for bucket in large)
    assert list(large) == sorted(large, reverse=True)
    assert len(large) < 50
