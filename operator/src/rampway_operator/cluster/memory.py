"""What the operator remembers of one InferenceDeployment outside its status.

Losing it costs time, never correctness: a restarted operator begins with an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rampway_operator.cluster.metrics import WindowMemory
from rampway_operator.cluster.warmup import Prompts, Warmup
from rampway_operator.core.observed import Served

__all__ = ["Memory"]


@dataclass(slots=True)
class Memory:
    """Kept by key for as long as the object exists."""

    windows: WindowMemory = field(default_factory=WindowMemory)
    served: Served = field(default_factory=Served)
    """Requests by arm since the HTTPRoute last changed."""
    warmup: Warmup | None = None
    prompts: Prompts | None = None
    foreign: set[str] = field(default_factory=set)
    """`Kind/name` of objects that were in the way when ours was to be created."""
    pod_uids: set[str] = field(default_factory=set)
    """Pods seen by the last look."""
    posted: set[str] = field(default_factory=set)
    """Names of the events that exist."""
    written: tuple[dict[str, Any], dict[str, Any]] | None = None
    """The last status that was written, and what the API server made of it."""
    lost: tuple[str, ...] = ()
    """Fields of it that the API server did not store: it is said once."""
    conflicts: int = 0
    """Conflicts in a row."""

    async def close(self) -> None:
        """Stop what runs in the background."""
        if self.warmup is not None:
            await self.warmup.close()
