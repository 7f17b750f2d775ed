"""From step to step: where a rollout goes when its current step is done.

It does not know when a step is done.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.spec import (
    AnalysisStep,
    PauseStep,
    SetWeightStep,
    WarmupStep,
)
from rampway_operator.core.state import EndReason, Phase
from rampway_operator.core.status_text import short
from rampway_operator.core.tick import Tick
from rampway_operator.core.view import weight_before

__all__ = [
    "advance",
    "move_traffic",
    "pods_are_there",
    "promote",
    "retry_step",
    "to_full",
    "unverified",
]


def advance(tick: Tick, index: int, reason: str, message: str, **changes: Any) -> Move:
    """The move to step `index`, or to 100 % and the bake when there is none."""
    steps = tick.spec.canary.steps
    while index < len(steps) and tick.skips(steps[index]):
        index += 1
    step = steps[index] if index < len(steps) else None
    match step:
        case None:
            if tick.rollout.desired_weight == 100 and tick.rollout.verified_weight == 100:
                return tick.enter(Phase.BAKING, reason, message, step_index=index, **changes)
            return move_traffic(tick, 100, reason, message, step_index=index, **changes)
        case SetWeightStep():
            return move_traffic(tick, step.weight, reason, message, step_index=index, **changes)
        case WarmupStep():
            return tick.enter(Phase.WARMING, reason, message, step_index=index, **changes)
        case AnalysisStep():
            return tick.enter(Phase.ANALYZING, reason, message, step_index=index, **changes)
        case PauseStep():
            length = (
                "a promote command" if step.duration is None else format_duration(step.duration)
            )
            told = f"{message}; pause for {length}"
            moved = replace(tick, state=replace(tick.state, phase=tick.state.phase))
            return moved.pause("PauseStep", told, None, step_index=index, **changes)


def move_traffic(tick: Tick, weight: int, reason: str, message: str, **changes: Any) -> Move:
    """The move towards `weight`: its pods first, then the traffic."""
    changes = {"weight_note": ""} | changes | {"desired_weight": weight}
    return tick.enter(Phase.PROVISIONING, reason, message, **changes)


def pods_are_there(tick: Tick, reason: str, message: str, **changes: Any) -> Move:
    """Where a rollout goes once the planned pods can serve and are warm."""
    step, desired = tick.step, tick.rollout.desired_weight
    wanted = 100 if step is None else step.weight if isinstance(step, SetWeightStep) else None
    if wanted is not None and desired == wanted:
        return tick.enter(Phase.SHIFTING, reason, message, **changes)
    return advance(tick, tick.rollout.step_index, reason, message, **changes)


def retry_step(tick: Tick, phase: Phase, reason: str, message: str) -> Move:
    """The current step again, after a pause: its weight, where the pause took it back."""
    if phase is not Phase.PREFLIGHT and isinstance(tick.step, SetWeightStep):
        return move_traffic(tick, tick.step.weight, reason, message)
    if phase is not Phase.PREFLIGHT and tick.step is None:
        return move_traffic(tick, 100, reason, message)
    return tick.enter(phase, reason, message)


def unverified(tick: Tick, told: str) -> Move:
    """The wait for traffic is over: back to the last weight that was seen to hold, and a pause."""
    last = weight_before(tick.spec, tick.rollout.step_index)
    longest = format_duration(tick.spec.traffic.verify_max_delay)
    return tick.pause(
        "TrafficUnverified",
        f"not verified within {longest}, back to {last} %: {told}",
        Phase.PROVISIONING,
        desired_weight=last,
        verified_weight=tick.routed_weight() if tick.spec.traffic.gateway is None else last,
    )


def to_full(tick: Tick, reason: str, message: str, approval: str) -> Move:
    """The move to 100 %, past all remaining steps; the bake still watches it."""
    last = len(tick.spec.canary.steps)
    return move_traffic(tick, 100, reason, message, step_index=last, approval=approval)


def promote(tick: Tick, approval: str, message: str) -> Move:
    """The commit point: the one write that moves the stable pointer."""
    assert approval, "a promotion needs evidence or a recorded decision"
    rollout = tick.rollout
    promoted = replace(
        rollout,
        approval=approval,
        end_reason=EndReason.PROMOTED,
        end_message=short(message),
        phase_started_at=tick.now,
        paused_from=None,
        paused_reason="",
    )
    kept = tuple(item for item in tick.state.failed if item.hash != rollout.candidate.hash)
    state = replace(
        tick.state, phase=Phase.DRAINING, stable=rollout.candidate, rollout=promoted, failed=kept
    )
    return tick.moved(state, EndReason.PROMOTED.value, message)
