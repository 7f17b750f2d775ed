"""Runs a command or one of our probes in a child process with a deadline, so that a crash or hang of it is a result.

It does not know what the children do. Their output goes to memory, so that no file system is needed and no
pipe can fill up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

__all__ = ["RESULT_MARK", "End", "Outcome", "run_command", "run_probe"]

RESULT_MARK = "rampway-probe-result: "
"""Starts the line of a probe's standard output that holds its result; libraries may print other lines."""

_MAX_OUTPUT = 1 << 24
_TAIL = 1 << 16
_POLL_SECONDS = 0.02


class End(Enum):
    """How a child ended."""

    EXITED = "exited"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    FLOOD = "flood"
    NOT_STARTED = "not started"


@dataclass(frozen=True)
class Outcome:
    """What became of a child. `code` is its exit code or the number of its signal."""

    end: End
    code: int = 0
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    data: Dict[str, Any] = field(default_factory=dict)
    """What a probe reported; empty when it never came so far."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.end is End.EXITED and self.code == 0

    @property
    def last_line(self) -> str:
        """The last line it printed, of standard error before standard output; at most 300 characters."""
        for text in (self.stderr, self.stdout):
            lines = [
                line.strip()
                for line in text.splitlines()
                if line.strip() and not line.startswith(RESULT_MARK)
            ]
            if lines:
                return lines[-1][:300]
        return ""

    def describe(self) -> str:
        """How it ended, in words, with the last line it printed."""
        how = {
            End.EXITED: "ended with exit code %d" % self.code,
            End.SIGNAL: "was killed by signal %d (%s)" % (self.code, _signal_name(self.code)),
            End.TIMEOUT: "did not end within %.3g s" % self.seconds,
            End.FLOOD: "printed more than %d MiB" % (_MAX_OUTPUT >> 20),
            End.NOT_STARTED: "could not be started",
        }[self.end]
        return "%s: %s" % (how, self.last_line) if self.last_line else how


def run_probe(
    name: str,
    arguments: Mapping[str, Any],
    *,
    timeout: float,
    environ: Optional[Mapping[str, str]] = None,
) -> Outcome:
    """The outcome of the probe `name` of `rampway_check_env.probes`, run by this python in a child."""
    code = "import sys; sys.path[:1] = [sys.argv[1]]; from rampway_check_env.probes import main; main(sys.argv[2], sys.argv[3])"
    command = [sys.executable, "-c", code, _origin(), name, json.dumps(dict(arguments))]
    outcome = run_command(command, timeout=timeout, environ=environ)
    for line in reversed(outcome.stdout.splitlines()):
        if line.startswith(RESULT_MARK):
            return _with_data(outcome, line[len(RESULT_MARK) :])
    return outcome


def run_command(
    command: Sequence[str], *, timeout: float, environ: Optional[Mapping[str, str]] = None
) -> Outcome:
    """The outcome of `command`, which is killed with its whole process group after `timeout` seconds.

    A process that cannot even be killed (it waits inside a driver) is left behind, not waited for.
    """
    started = time.monotonic()
    out, err = _buffer(), _buffer()
    try:
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is ours or the user's own
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                env=None if environ is None else dict(environ),
            )
        except (OSError, ValueError) as error:
            return Outcome(End.NOT_STARTED, stderr=str(error))
        try:
            end = _wait(process, started + timeout, (out, err))
        except BaseException:  # this process is told to end: its child must not stay
            _kill_group(process)
            raise
        seconds = time.monotonic() - started
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        if end is End.EXITED and code < 0:
            end, code = End.SIGNAL, -code
        return Outcome(
            end, code, _tail(out), _tail(err), timeout if end is End.TIMEOUT else seconds
        )
    finally:
        os.close(out)
        os.close(err)


def _buffer() -> int:
    """A file in memory; in a temporary folder where the system has no such files."""
    try:
        return os.memfd_create("output")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as stream:
            return os.dup(stream.fileno())


def _wait(process: "subprocess.Popen[bytes]", deadline: float, outputs: Sequence[int]) -> End:
    while True:
        try:
            process.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        else:
            return End.EXITED
        flooded = sum(os.fstat(fd).st_size for fd in outputs) > _MAX_OUTPUT
        if flooded or time.monotonic() >= deadline:
            _kill_group(process)
            return End.FLOOD if flooded else End.TIMEOUT


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(2)
    except (OSError, subprocess.TimeoutExpired):
        process.returncode = -signal.SIGKILL  # or its destructor would warn of a child left behind


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, _TAIL, max(0, size - _TAIL)).decode("utf-8", "replace")


def _with_data(outcome: Outcome, text: str) -> Outcome:
    try:
        data = json.loads(text)
    except ValueError:
        return outcome
    return Outcome(
        outcome.end,
        outcome.code,
        outcome.stdout,
        outcome.stderr,
        outcome.seconds,
        data if isinstance(data, dict) else {},
    )


def _origin() -> str:
    """The folder or zip archive that holds this package, for the child's `sys.path`."""
    return str(Path(__file__).absolute().parent.parent)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
