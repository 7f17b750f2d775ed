"""Starts the interpreter tests of the kernels in a process of their own, and the dispatch rules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rampway_server.errors import UsageError
from rampway_server.kernels import reference
from rampway_server.kernels.dispatch import select

HERE = Path(__file__).parent


def test_given_the_interpreter_when_every_kernel_runs_then_it_equals_its_reference() -> None:
    pytest.importorskip("triton", reason="triton is not installed: kernels are not tested")
    command = [sys.executable, "-m", "pytest", "-q", str(HERE / "kernel_interpreted.py")]
    done = subprocess.run(
        command,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


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
