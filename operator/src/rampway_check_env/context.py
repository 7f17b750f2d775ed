"""What every check is given: the requirements, the machine, its loader, and children with a deadline.

It does not know which checks there are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Sequence

from rampway_check_env.child import Outcome, run_command, run_probe
from rampway_check_env.loader import Loader
from rampway_check_env.machine import Machine
from rampway_check_env.modules import package_folders
from rampway_check_env.requirements import Requirements

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """The input of a check. `deadline` is an instant of the monotonic clock that no child outlives.

    `other_image` says that this is not the engine's image: what is found in it says nothing of the engine.
    """

    requirements: Requirements
    machine: Machine
    deadline: float
    other_image: bool = False
    loader: Loader = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loader", Loader(self.machine))

    def probe(self, name: str, *, limit: float, **arguments: Any) -> Outcome:
        """The outcome of a probe, which gets at most `limit` seconds."""
        return run_probe(name, arguments, timeout=self._left(limit), environ=self.machine.environ)

    def command(self, command: Sequence[str], *, limit: float) -> Outcome:
        """The outcome of a command, which gets at most `limit` seconds."""
        return run_command(command, timeout=self._left(limit), environ=self.machine.environ)

    def installed(self, package: str) -> bool:
        """Whether a top-level package can be imported, found without importing it."""
        return bool(package_folders(package, self.machine.module_path))

    def _left(self, limit: float) -> float:
        return max(0.1, min(limit, self.deadline - time.monotonic()))
