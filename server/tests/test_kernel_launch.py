"""Starts the interpreter tests of the kernels in a process of their own, and the dispatch rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rampway_server.errors import UsageError
from rampway_server.kernels import reference
from rampway_server.kernels.dispatch import select

HERE = Path(__file__).parent


def run_parity(shapes: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", shapes]
    done = subprocess.run(
        [*command, str(HERE / "kernel_parity.py")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    "shapes", ["not slow", pytest.param("slow", marks=pytest.mark.slow)], ids=["few", "matrix"]
)
def test_given_the_interpreter_when_every_kernel_runs_then_it_equals_its_reference(
    shapes: str,
) -> None:
    pytest.importorskip("triton", reason="triton is not installed: kernels are not tested")
    run_parity(shapes, TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: Triton kernels are not run on a GPU"
)
def test_given_a_gpu_when_every_kernel_runs_then_it_equals_its_reference() -> None:
    run_parity("slow or not slow", KERNEL_DEVICE="cuda", TRITON_INTERPRET="0")


def test_given_cpu_when_kernels_are_chosen_then_they_are_the_references() -> None:
    assert select("cpu") is reference
    assert select("cuda", "reference") is reference


def test_given_cpu_when_triton_is_forced_without_interpreter_then_one_line_says_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UsageError, match="TRITON_INTERPRET=1"):
        select("cpu", "triton")


def test_given_the_cpu_path_when_it_is_imported_then_triton_is_not() -> None:
    code = (
        "import sys; from rampway_server.kernels.dispatch import select; select('cpu');"
        "import rampway_server.model.assembly; sys.exit('triton' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
