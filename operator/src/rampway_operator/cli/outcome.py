"""Whether the rollout of what the spec says now has ended, and how.

It does not know how the object was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Outcome", "outcome_of"]

PROMOTED = 0
ROLLED_BACK = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a rollout ended. `code` is the exit code of `wait`: 0 promoted, 1 rolled back or refused."""

    code: int
    message: str


def outcome_of(found: Mapping[str, Any]) -> Outcome | None:
    """None while the operator has not seen the latest spec, or its rollout is under way."""
    generation = (found.get("metadata") or {}).get("generation")
    status = found.get("status") or {}
    if status.get("observedGeneration") != generation:
        return None
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    invalid = conditions.get("SpecValid") or {}
    if invalid.get("status") == "False":
        return Outcome(ROLLED_BACK, f"{invalid.get('reason')}: {invalid.get('message')}")
    complete = conditions.get("RolloutComplete") or {}
    if complete.get("status") != "True" or complete.get("observedGeneration") != generation:
        return None
    promoted = complete.get("reason") == "Promoted"
    message = f"{complete.get('reason')}: {complete.get('message')}"
    return Outcome(PROMOTED if promoted else ROLLED_BACK, message)
