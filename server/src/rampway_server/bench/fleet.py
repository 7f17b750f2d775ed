"""The processes that measure: one a contestant, asked in turn, so that all see the same machine.

It knows how to start and ask them, not what is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.bench.peers import python_of
from rampway_server.bench.worker import PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

__all__ = ["Fleet"]


@dataclass(slots=True)
class _Member:
    name: str
    process: subprocess.Popen[str]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; a member that died says so."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError as error:
            return {"error": repr(error)}
        if not line:
            return {"error": f"its process ended with status {self.process.wait()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer


class Fleet:
    """Contestants that run here, by name; `skipped` says why the others do not."""

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self.members: dict[str, _Member] = {}
        self.skipped: dict[str, str] = {}
        self._names = names
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Fleet:
        for name in self._names:
            self._start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def ask(self, name: str, **request: Any) -> dict[str, Any] | None:
        """Return the answer of a contestant; None when it does not run or cannot do this."""
        member = self.members.get(name)
        if member is None:
            return None
        answer = member.ask(request)
        if "error" in answer:
            self.skipped[f"{name} {request['case']}"] = answer["error"]
            return None
        return answer

    def _start(self, name: str) -> None:
        python = python_of(self._folder) if name in PEERS else Path(sys.executable)
        if not python.exists():
            self.skipped[name] = (
                f"{self._folder} is not prepared: run python -m rampway_server.bench.peers"
            )
            return
        package = Path(__file__).parents[2]
        process = subprocess.Popen(  # noqa: S603 - our own module
            [
                str(python),
                *("-m", "rampway_server.bench.worker"),
                *(name, str(self._folder), str(_last_cpu())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"},
        )
        self._stack.callback(_end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        hello = json.loads(line) if line else {"missing": "its process did not start"}
        if "missing" in hello:
            self.skipped[name] = hello["missing"]
        else:
            self.members[name] = _Member(name, process)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def _last_cpu() -> int:
    """Return the processor all are pinned to, one after the other."""
    if hasattr(os, "sched_getaffinity"):
        return max(os.sched_getaffinity(0))
    return 0
