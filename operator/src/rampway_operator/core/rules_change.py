"""What an edit of the spec means for a rollout under way. It does not know what is in an edit."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rampway_operator.core.config_refs import missing_configs
from rampway_operator.core.moves import Move
from rampway_operator.core.revision import run_digest, strategy_of
from rampway_operator.core.spec import SetWeightStep
from rampway_operator.core.state import EndReason, Phase
from rampway_operator.core.steps import advance
from rampway_operator.core.tick import Tick

__all__ = ["on_spec_change"]


_STEPPING: Final = frozenset({Phase.PROVISIONING, Phase.WARMING, Phase.SHIFTING, Phase.ANALYZING})


def on_spec_change(tick: Tick) -> Move | None:  # noqa: PLR0911 - one exit a kind of change
    """A newer spec always wins: back to stable, on to another revision, or the same one on another plan."""
    rollout, stable, wanted = tick.rollout, tick.state.stable, tick.observed.spec_hash
    if missing_configs(tick.spec, tick.observed):
        return None  # what the spec asks for is not known; the candidate has its copies
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
    if rollout.strategy != strategy_of(tick.spec):
        return tick.roll_back(
            EndReason.SUPERSEDED,
            f"strategy changed from {rollout.strategy} to {strategy_of(tick.spec)}: tried again under it",
            successor=True,
        )
    plan = run_digest(tick.spec)
    if plan == rollout.plan:
        return None
    return _replanned(tick, plan)


def _replanned(tick: Tick, plan: str) -> Move:
    """The same revision on another plan, from the last setWeight step that its traffic has reached.

    No analysis after that weight is passed over by an edit. Evidence is kept when only steps changed;
    other objectives ask another question.
    """
    rollout = tick.rollout
    index = _reached(tick)
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
    paused_on_step = (
        phase is Phase.PAUSED
        and rollout.paused_from in (None, Phase.ANALYZING)
        and rollout.paused_reason != "SpecPaused"
    )
    if paused_on_step or (rollout.desired_weight > 0 and phase in _STEPPING):
        return advance(changed_tick, index, "PlanChanged", message)
    return changed_tick.moved(changed_tick.state, "PlanChanged", message)


def _reached(tick: Tick) -> int:
    """The index, in the steps as they are now, of the last weight that the candidate already has."""
    steps, desired = tick.spec.canary.steps, tick.rollout.desired_weight
    if desired == 100:
        return len(steps)
    done = [i for i, s in enumerate(steps) if isinstance(s, SetWeightStep) and s.weight <= desired]
    return done[-1] if done else 0
