"""A child that crashes, hangs, floods or cannot start is a result, and takes no longer than its time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rampway_check_env
from rampway_check_env.child import End, run_command, run_probe

PYTHON = [sys.executable, "-c"]


def test_given_a_command_that_ends_then_code_and_last_line_are_kept() -> None:
    outcome = run_command([*PYTHON, "import sys; print('one\\ntwo\\n'); sys.exit(3)"], timeout=20)

    assert (outcome.end, outcome.code, outcome.last_line) == (End.EXITED, 3, "two")
    assert outcome.describe() == "ended with exit code 3: two"


def test_given_words_on_standard_error_then_they_come_before_standard_output() -> None:
    outcome = run_command(
        [*PYTHON, "import sys; print('out'); print('why', file=sys.stderr)"], timeout=20
    )

    assert outcome.ok
    assert outcome.last_line == "why"


def test_given_a_crash_then_the_signal_is_named() -> None:
    outcome = run_command(
        [*PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"], timeout=20
    )

    assert (outcome.end, outcome.code) == (End.SIGNAL, 11)
    assert "SIGSEGV" in outcome.describe()


def test_given_a_hang_then_the_child_and_its_children_are_killed_in_time(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {file}; wait"
    began = time.monotonic()

    outcome = run_command(["sh", "-c", script], timeout=1.0)

    assert outcome.end is End.TIMEOUT
    assert time.monotonic() - began < 10
    assert "did not end within 1 s" in outcome.describe()
    assert not alive(int(file.read_text(encoding="utf-8")))


def alive(pid: int) -> bool:
    """Return whether a process runs; one that only waits to be reaped does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


def test_given_a_flood_then_it_is_stopped() -> None:
    outcome = run_command(["yes"], timeout=60)

    assert outcome.end is End.FLOOD
    assert "printed more than 16 MiB" in outcome.describe()
    assert len(outcome.stdout) <= 1 << 16


@pytest.mark.parametrize("command", [["/no/such/program"], ["/etc/passwd"], ["a\0b"]])
def test_given_a_command_that_cannot_start_then_it_is_a_result(command: list[str]) -> None:
    outcome = run_command(command, timeout=5)

    assert outcome.end is End.NOT_STARTED
    assert outcome.describe().startswith("could not be started: ")


def test_given_a_probe_of_a_missing_package_then_the_error_is_its_last_line() -> None:
    outcome = run_probe(
        "prefix_tree", {}, timeout=30, environ={"PATH": os.environ["PATH"], "PYTHONPATH": ""}
    )

    assert outcome.data or "ModuleNotFoundError" in outcome.last_line


def test_given_an_unknown_probe_then_it_is_refused() -> None:
    outcome = run_probe("nope", {}, timeout=30)

    assert not outcome.ok
    assert "no probe named 'nope'" in outcome.last_line


def test_given_modules_of_the_working_folder_then_a_probe_never_imports_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines start in folders full of python files; a json.py there must not become ours."""
    (tmp_path / "ctypes.py").write_text(
        "raise SystemExit('imported the wrong ctypes')", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)

    outcome = run_probe("cuda", {"library": "libnothing.so", "free_memory": False}, timeout=30)

    assert "wrong ctypes" not in outcome.stderr
    assert "libnothing.so" in outcome.last_line


def test_given_a_system_without_files_in_memory_then_a_temporary_file_holds_the_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create")

    assert run_command(["echo", "fine"], timeout=20).last_line == "fine"


def test_given_sigterm_while_a_probe_hangs_then_the_check_ends_and_its_child_with_it(
    tmp_path: Path,
) -> None:
    """As process 1 of an init container it would otherwise hold the pod for its whole grace period."""
    file = tmp_path / "pid"
    wanted = {
        "custom": [
            {"name": "x", "command": ["sh", "-c", f"echo $$ > {file}; sleep 60"], "timeout": "60s"}
        ]
    }
    source = str(Path(rampway_check_env.__file__).parents[1])
    command = [sys.executable, "-m", "rampway_check_env", "--requirements", json.dumps(wanted)]

    with subprocess.Popen(command, env={"PATH": os.environ["PATH"], "PYTHONPATH": source}) as check:
        wait_for(lambda: file.exists() and file.read_text(encoding="utf-8").strip() != "")
        check.send_signal(signal.SIGTERM)
        assert check.wait(20) == 143

    assert not alive(int(file.read_text(encoding="utf-8")))


def wait_for(reached: Callable[[], bool]) -> None:
    """Block until a child has come so far; fails after half a minute."""
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
