"""What an edit of the spec means for a rollout under way. It does not know what is in an edit."""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.moves import Move
from rampway_operator.core.revision import run_digest
from rampway_operator.core.spec import SetWeightStep
from rampway_operator.core.state import EndReason, Phase
from rampway_operator.core.steps import advance, move_traffic
from rampway_operator.core.tick import Tick

__all__ = ["on_spec_change"]


def on_spec_change(tick: Tick) -> Move | None:
    """A newer spec always wins: back to stable, on to another revision, or the same one on another plan."""
    rollout, stable, wanted = tick.rollout, tick.state.stable, tick.observed.spec_hash
    if wanted != rollout.candidate.hash:
        if stable is not None and wanted == stable.hash:
            return tick.roll_back(EndReason.REVERTED, f"the spec went back to revision {wanted}")
        return tick.roll_back(
            EndReason.SUPERSEDED, f"the spec went on to revision {wanted}", successor=True
        )
    if tick.spec.replicas == 0:
        return tick.roll_back(
            EndReason.SUPERSEDED, "replicas is 0: the candidate is tried again when pods are wanted",
            successor=True,
        )  # fmt: skip
    plan = run_digest(tick.spec)
    if plan == rollout.plan:
        return None
    return _replanned(tick, plan)


def _replanned(tick: Tick, plan: str) -> Move:
    """The same revision on another plan: done steps stay done, the current one starts again.

    Evidence is kept when only steps changed; other objectives ask another question.
    """
    rollout = tick.rollout
    index = min(rollout.step_index, len(tick.spec.canary.steps))
    same_questions = rollout.plan.split(".")[-1] == plan.rsplit(".", maxsplit=1)[-1]
    changed = replace(
        rollout,
        plan=plan,
        step_index=index,
        evidence=rollout.evidence if same_questions else (),
        verdicts=rollout.verdicts if same_questions else (),
        step_started_at=tick.now,
    )
    changed_tick = replace(tick, state=replace(tick.state, rollout=changed))
    message = f"steps or objectives changed: step {index + 1} starts again"
    phase = tick.state.phase
    if phase in (Phase.PROVISIONING, Phase.SHIFTING) and rollout.desired_weight > 0:
        step = changed_tick.step
        if isinstance(step, SetWeightStep) or step is None:
            weight = max(100 if step is None else step.weight, rollout.desired_weight)
            return move_traffic(changed_tick, weight, "PlanChanged", message)
    paused_on_step = (
        phase is Phase.PAUSED
        and rollout.paused_from in (None, Phase.ANALYZING)
        and rollout.paused_reason != "SpecPaused"
    )
    if phase in (Phase.ANALYZING, Phase.SHIFTING) or paused_on_step:
        return advance(changed_tick, index, "PlanChanged", message)
    return changed_tick.moved(changed_tick.state, "PlanChanged", message)
