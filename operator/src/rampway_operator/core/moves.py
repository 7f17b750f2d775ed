"""The one value that `decide` returns. It does not know how a move is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rampway_operator.core.state import State

__all__ = ["Move"]


@dataclass(frozen=True, slots=True)
class Move:
    """What to remember next, and when to look again.

    If `state` changes what is wanted of the cluster (`transition`), it is written to status before
    anything is done about it: the next tick plans from what was stored, so a crash in between loses
    nothing.
    """

    state: State
    transition: bool
    requeue_after: timedelta
    waiting_for: str = ""
    """One sentence with numbers: what the rollout waits for; empty when it waits for nothing."""
