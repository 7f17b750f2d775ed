"""What is not safe in any phase of a trial: failed checks, crashes, a candidate that vanished.

These edges stay live while a rollout is paused. It does not know what a phase waits for.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

from rampway_operator.core.checks import on_failed_checks
from rampway_operator.core.moves import Move
from rampway_operator.core.spec import SetWeightStep
from rampway_operator.core.state import EndReason, Phase
from rampway_operator.core.steps import to_full
from rampway_operator.core.tick import Tick

__all__ = ["CRASHES", "STABLE_DOWN_AFTER", "on_danger", "on_stable_down"]

CRASHES: Final = 3
"""Restarts of one candidate pod's engine that are no accident any more."""
LOSSES: Final = 3
"""Times that all candidate endpoints may vanish under traffic in one rollout."""
STABLE_DOWN_AFTER: Final = timedelta(minutes=3)
"""So long a stable revision must be down before a candidate that serves goes past its steps."""


def on_danger(tick: Tick) -> Move | None:
    """The move that safety asks for, if any."""
    return on_failed_checks(tick) or _on_crash_loop(tick) or _on_lost_endpoints(tick)


def _on_crash_loop(tick: Tick) -> Move | None:
    for pod in tick.arms.candidate:
        if pod.engine_restarts >= CRASHES and not pod.ready:
            exit_text = pod.engine_last_exit or pod.engine_waiting_reason or "no reason given"
            return tick.roll_back(
                EndReason.CANDIDATE_UNAVAILABLE,
                f"the engine of pod {pod.name} died {pod.engine_restarts} times: {exit_text}",
            )
    return None


def _on_lost_endpoints(tick: Tick) -> Move | None:
    """Weight on nothing is an outage of that share: it goes to 0 in the very tick that sees it."""
    rollout = tick.rollout
    if rollout.verified_weight == 0 or any(p.ready for p in tick.arms.candidate):
        return None
    crashed = [p for p in tick.arms.candidate if p.engine_restarts or p.engine_last_exit]
    losses = rollout.weight_losses + 1
    if crashed or losses > LOSSES or tick.state.stable is None:
        detail = crashed[0].engine_last_exit if crashed else f"seen {losses} times"
        return tick.roll_back(
            EndReason.CANDIDATE_UNAVAILABLE,
            f"no candidate pod is ready while it has {rollout.verified_weight} % of the traffic: {detail}",
            hard=True,
        )
    steps = tick.spec.canary.steps
    before = [
        i for i, s in enumerate(steps[: rollout.step_index + 1]) if isinstance(s, SetWeightStep)
    ]
    index = before[-1] if before else rollout.step_index
    if rollout.step_index >= len(steps) and rollout.desired_weight == 100:
        index = before[-1] if before and _weight(steps[before[-1]]) == 100 else len(steps)
    lost: dict[str, object] = {
        "desired_weight": 0,
        "verified_weight": 0,
        "weight_losses": losses,
        "step_index": index,
    }
    message = f"no candidate pod is ready: its weight of {rollout.verified_weight} % went to 0"
    if tick.state.phase is Phase.PAUSED:
        moved = replace(rollout, **lost, paused_from=Phase.PROVISIONING)  # type: ignore[arg-type]
        return tick.moved(replace(tick.state, rollout=moved), "CandidateLost", message)
    return tick.enter(Phase.PROVISIONING, "CandidateLost", message, **lost)


def _weight(step: object) -> int:
    return step.weight if isinstance(step, SetWeightStep) else 0


def on_stable_down(tick: Tick) -> Move | None:
    """A stable revision that serves nothing must not hold up what may be its repair.

    The candidate goes to 100 % and has to pass its absolute objectives in the bake: there is nothing
    left to compare it with.
    """
    rollout = tick.rollout
    waits = (Phase.PROVISIONING, Phase.WARMING, Phase.SHIFTING, Phase.ANALYZING)
    down = tick.state.stable is not None and not any(
        p.ready for p in (*tick.arms.stable, *tick.arms.baseline)
    )
    if not down:
        if rollout.stable_down_since is None:
            return None
        back = replace(rollout, stable_down_since=None)
        return tick.moved(
            replace(tick.state, rollout=back), "StableBack", "a stable pod is ready again"
        )
    if rollout.stable_down_since is None:
        noted = replace(rollout, stable_down_since=tick.now)
        return tick.moved(
            replace(tick.state, rollout=noted), "StableDown", "no stable pod is ready"
        )
    if (
        tick.state.phase in waits
        and rollout.desired_weight < 100
        and tick.candidates
        and tick.now - rollout.stable_down_since >= STABLE_DOWN_AFTER
    ):
        message = (
            "no stable pod is ready and the candidate serves: comparisons are skipped (StableDown)"
        )
        return to_full(tick, "StableDown", message, rollout.approval)
    return None
