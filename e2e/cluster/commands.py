"""Runs other programs and turns their failure into one readable error.

It knows nothing of what the programs do.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cluster.errors import ClusterError

TAIL_LINES = 15


def run(
    argv: Sequence[str | Path],
    *,
    remedy: str,
    stdin: str | bytes | None = None,
    timeout_s: float = 120,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """The standard output of a command that succeeded; raises ClusterError with its last lines."""
    words = [str(word) for word in argv]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words, input=data, capture_output=True, timeout=timeout_s, check=False, cwd=cwd, env=env
        )
    except FileNotFoundError:
        raise ClusterError(f"{words[0]} is not installed", remedy) from None
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"{' '.join(words[:4])} did not end: waited {timeout_s:.0f} s", remedy
        ) from None
    if done.returncode != 0:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise ClusterError(
            f"{' '.join(words[:4])} failed: exit status {done.returncode}",
            remedy,
            detail=last_lines(output),
        )
    return done.stdout.decode(errors="replace")


def succeeds(argv: Sequence[str | Path], timeout_s: float = 30) -> bool:
    """Whether a command exists and exits with 0; its output is dropped."""
    try:
        done = subprocess.run(
            [str(word) for word in argv], capture_output=True, timeout=timeout_s, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def stream(
    argv: Sequence[str | Path],
    *,
    on_line: Callable[[str], None],
    remedy: str,
    log: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Runs a long command and gives each line of its output to `on_line` as it appears.

    An exception here, Ctrl-C included, also ends the command and everything it started.
    """
    words = [str(word) for word in argv]
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    sink = log.open("w") if log else None
    try:
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            cwd=cwd, env=env, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise ClusterError(f"{words[0]} is not installed", remedy) from None
    try:
        assert process.stdout is not None
        for line in process.stdout:
            tail.append(line)
            if sink:
                sink.write(line)
            on_line(line.rstrip())
        status = process.wait()
    except BaseException:
        end_group(process)
        raise
    finally:
        if process.stdout:
            process.stdout.close()
        if sink:
            sink.close()
    if status != 0:
        where = f"; whole output in {log}" if log else ""
        raise ClusterError(
            f"{' '.join(words[:3])} failed: exit status {status}{where}", remedy, "".join(tail)
        )


def end_group(
    process: subprocess.Popen[str] | subprocess.Popen[bytes], grace_s: float = 10
) -> None:
    """Ends a process that leads its own session, with its children; SIGTERM first."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_lines(text: str, count: int = TAIL_LINES) -> str:
    """The end of a log, for an error message."""
    return "\n".join(text.rstrip().splitlines()[-count:])
