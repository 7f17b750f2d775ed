"""`bench kernels`: every case can run and counts its bytes, shares follow the clock, no GPU is one line."""

from __future__ import annotations

import itertools

import pytest
import torch

from rampway_server.__main__ import main
from rampway_server.bench.kernel_cases import Sizes, cases, copy_case
from rampway_server.bench.kernels import KERNELS, measure, render
from rampway_server.kernels import reference

SMALL = Sizes(
    tokens=8,
    hidden=32,
    inner=48,
    q_heads=4,
    kv_heads=2,
    head_dim=16,
    decode=((2, 32, 0.8),),
    extend=(20,),
    vocab=50,
    rows=2,
)


def test_given_no_gpu_when_kernels_are_benched_then_one_line_says_what_is_needed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "kernels"]) == 2
    said = capsys.readouterr().err
    assert "bench kernels needs a CUDA device: got none" in said
    assert len(said.strip().splitlines()) == 1


def test_given_the_references_when_cases_are_measured_then_each_kernel_has_bytes_and_no_error() -> (
    None
):
    clock = itertools.cycle((0.5,))

    def timed(call: object) -> float:
        assert callable(call)
        call()
        return next(clock)

    with torch.inference_mode():
        wanted = cases(reference, "fp32", "cpu", KERNELS, SMALL)
        figures = measure(wanted, "fp32", 1e6, timed)
    assert {one.kernel for one in figures} == set(KERNELS)
    assert all(one.max_error == 0 and one.bytes_moved > 0 for one in figures)
    by_name = {(one.kernel, one.case): one for one in figures}
    norm = by_name["rms_norm", "8 x 32 with residual"]
    assert norm.bytes_moved == 4 * 8 * 32 * 4
    assert norm.share == pytest.approx(norm.bytes_moved / 0.5 / 1e6)
    decode = by_name["paged_decode_attention", "2 x 32 keys"]
    assert decode.bytes_moved == 2 * 64 * 2 * 16 * 4
    extend = by_name["prefix_extend_attention", "prompt of 20"]
    # Each pair of a query and a key it sees: D products and sums, for scores and for values.
    assert extend.operations == 4 * 4 * 16 * sum(range(1, 21))
    assert extend.share == 1.0
    table = render(figures)
    assert len(table.splitlines()) == len(figures) + 2
    assert "MISSED" in table


def test_given_a_copy_when_its_bytes_are_counted_then_reads_and_writes_count() -> None:
    moved, call = copy_case("cpu", 4096)
    call()
    assert moved == 8192
