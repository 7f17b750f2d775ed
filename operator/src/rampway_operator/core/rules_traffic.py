"""The phases with traffic: Shifting, Analyzing, Baking. It does not know statistics (`verdict.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rampway_operator.core import gateway
from rampway_operator.core.capacity import expressed, weight_note
from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.rules_blue_green import references
from rampway_operator.core.spec import (
    AnalysisMode,
    AnalysisStep,
    Metric,
    OnFailure,
    OnUndecided,
)
from rampway_operator.core.state import EndReason, Phase, Rollout, Verdict
from rampway_operator.core.steps import advance, move_traffic, promote, unverified
from rampway_operator.core.tick import ROLLOUT_RESYNC, SOON, Tick
from rampway_operator.core.verdict import Analysed, update
from rampway_operator.core.verification import Check

__all__ = ["fail", "judge_windows", "on_analyzing", "on_baking", "on_shifting"]


def on_shifting(tick: Tick) -> Move:
    """Verified: the endpoints that get traffic are exactly the pods that should, and all of them are there."""
    missing = tick.aim.pods.candidate - len(tick.candidates)
    if missing > tick.unproven:
        return move_traffic(
            tick, tick.rollout.desired_weight, "PodsLost", "a candidate pod cannot serve any more"
        )
    found = _endpoints(tick)
    if found.verified and tick.spec.traffic.gateway is not None:
        found = gateway.check(tick)
    if found.verified:
        return _verified(tick, found)
    if tick.state.stable is None:
        if tick.in_phase > tick.spec.progress_deadline:
            return tick.roll_back(EndReason.PROGRESS_DEADLINE_EXCEEDED, found.told)
        return tick.stay(found.told, after=SOON)
    if not found.overdue:
        return tick.stay(found.told, after=SOON)
    return unverified(tick, found.told)


def _endpoints(tick: Tick) -> Check:
    """Whether the endpoints that get traffic are those that shall; without a gateway they are the weight."""
    wanted, rotation, rollout = tick.aim.rotation, tick.rotation(), tick.rollout
    complete = (
        len(rotation.candidate) >= wanted.candidate and len(rotation.baseline) >= wanted.baseline
    )
    agreed = tick.observed.routed == rotation.ready and _labelled(tick, rotation.names)
    if complete and agreed and rotation.candidate:
        candidates, together = len(rotation.candidate & rotation.ready), len(rotation.ready)
        weight = expressed(candidates, together)
        told = f"candidate has {candidates} of {together} endpoints, {weight} % of the traffic"
        note = weight_note(rollout.desired_weight, candidates, together)
        return Check(told, verified=True, weight=weight, note=note)
    extra = len(tick.observed.routed - rotation.ready)
    missing = len(rotation.ready - tick.observed.routed)
    told = f"traffic to agree with {rollout.desired_weight} %: {missing} endpoints to come, {extra} to go"
    behind_gateway = tick.spec.traffic.gateway is not None
    waited = min(tick.in_phase, tick.observed.served.busy) if behind_gateway else tick.in_phase
    return Check(told, overdue=waited > tick.spec.traffic.verify_max_delay)


def _labelled(tick: Tick, names: frozenset[str]) -> bool:
    """Whether pods carry the rotation labels: traffic that agrees by luck does not count."""
    return {p.name for p in tick.observed.pods if p.in_rotation and not p.deleting} == names


def _verified(tick: Tick, found: Check) -> Move:
    rollout = tick.rollout
    verified: dict[str, Any] = {"verified_weight": found.weight, "weight_note": found.note}
    if tick.state.stable is None:
        seen = replace(tick.state, rollout=replace(rollout, **verified))
        return promote(
            replace(tick, state=seen), "NoStable", f"{found.told}; it is the first revision"
        )
    seen_tick = replace(tick, state=replace(tick.state, rollout=replace(rollout, **verified)))
    if tick.step is None:
        return seen_tick.enter(Phase.BAKING, "TrafficVerified", found.told)
    return advance(seen_tick, rollout.step_index + 1, "TrafficVerified", found.told)


def judge_windows(tick: Tick, *, final: bool) -> tuple[Tick, Analysed]:
    """What the windows of this tick add to the evidence, and what it says; the tick remembers both."""
    step = tick.step
    objectives = step.objectives if isinstance(step, AnalysisStep) else ()
    state, windows, weight = references(tick)
    assert state.rollout is not None, "references() keeps the rollout"
    found = update(
        tick.spec, state.rollout, windows, weight=weight, final=final, objectives=objectives
    )
    known = replace(state.rollout, evidence=found.evidence, verdicts=found.verdicts)
    return replace(tick, state=replace(state, rollout=known)), found


def on_analyzing(tick: Tick) -> Move:
    """The verdict of the step, or what missing data and time ask for."""
    rollout, analysis = tick.rollout, tick.spec.analysis
    held = _outage(tick)
    if held is not None:
        return held
    final = tick.is_final_analysis
    seen, found = judge_windows(tick, final=final)
    if rollout.outage_since is not None:
        # The time that nothing could be measured is not the candidate's.
        begun = (rollout.step_started_at or tick.now) + (tick.now - rollout.outage_since)
        known = replace(seen.rollout, outage_since=None, step_started_at=begun)
        seen = replace(seen, state=replace(seen.state, rollout=known))
    enforced = analysis.mode is AnalysisMode.ENFORCE
    approval = ("Evidence" if enforced else "Preview") if tick.may_approve else rollout.approval
    if found.outcome is Verdict.FAIL and enforced:
        return fail(seen, found, Phase.ANALYZING)
    if found.outcome is not Verdict.UNDECIDED:
        reason = "AnalysisPassed" if found.outcome is Verdict.PASS else "AnalysisFailedPreview"
        return advance(seen, rollout.step_index + 1, reason, found.message, approval=approval)
    if seen.in_step < analysis.max_duration:
        return seen.stay(found.message or "the first window", after=ROLLOUT_RESYNC)
    return _undecided(seen, found, approval, enforced=enforced)


def _undecided(tick: Tick, found: Analysed, approval: str, *, enforced: bool) -> Move:
    told = f"undecided after {format_duration(tick.spec.analysis.max_duration)}: {found.message}"
    proceed = tick.spec.analysis.on_undecided is OnUndecided.PROCEED
    if proceed or not enforced:
        why = "Proceed" if enforced and tick.may_approve else approval
        return advance(tick, tick.rollout.step_index + 1, "AnalysisUndecided", told, approval=why)
    if tick.spec.analysis.on_undecided is OnUndecided.ABORT:
        return tick.roll_back(EndReason.ANALYSIS_UNDECIDED, told)
    return tick.pause("AnalysisUndecided", told, Phase.ANALYZING)


def _outage(tick: Tick) -> Move | None:
    """Missing data is Hold: never a verdict, never success."""
    scrape, rollout = tick.observed.scrape, tick.rollout
    if scrape.missing_metrics:
        names = ", ".join(scrape.missing_metrics)
        return tick.pause("MetricMissing", f"the engine does not export {names}", Phase.ANALYZING)
    if not scrape.error or tick.observed.windows:
        return None
    since = rollout.outage_since or tick.now
    told = f"metrics cannot be read: {scrape.error}"
    if tick.now - since <= tick.spec.analysis.outage_max_duration:
        return tick.stay(told, after=ROLLOUT_RESYNC, outage_since=since)
    if tick.spec.analysis.outage_after_max is OnFailure.ABORT:
        return tick.roll_back(EndReason.INFRASTRUCTURE, told)
    return tick.pause("MetricsOutage", told, Phase.ANALYZING, outage_since=None)


def fail(tick: Tick, found: Analysed, back_to: Phase) -> Move:
    """What a failed blocking objective leads to; errors are a hard failure, slow or cold is not."""
    names = ", ".join(found.failing)
    told = f"objective {names} failed: {found.message}"
    if tick.spec.analysis.on_failure is OnFailure.PAUSE:
        return tick.pause("AnalysisFailed", told, back_to)
    by_name = {o.name: o for o in tick.spec.analysis.objectives}
    hard = any(by_name[n].metric is Metric.ERROR_RATE for n in found.failing if n in by_name)
    return tick.roll_back(EndReason.ANALYSIS_FAILED, told, hard=hard)


def on_baking(tick: Tick) -> Move:
    """100 % under watch, and promotion with what approves it.

    No arm of the old revision has traffic any more: a canary is held to its absolute objectives, a
    blue-green one is compared with the recorded figures of stable, too.
    """
    rollout, analysis = tick.rollout, tick.spec.analysis
    seen, found = judge_windows(tick, final=True)
    if tick.spec.blue_green is None:
        known = _absolute_only(tick, seen.rollout)
        seen = replace(seen, state=replace(seen.state, rollout=known))
    enforced = analysis.mode is AnalysisMode.ENFORCE
    if found.outcome is Verdict.FAIL and enforced:
        return fail(seen, found, Phase.BAKING)
    left = tick.spec.canary.bake - tick.in_phase
    if left.total_seconds() > 0:
        told = f"the bake at 100 % to end in {format_duration(left)}; {found.message}"
        return seen.stay(told, after=min(ROLLOUT_RESYNC, left))
    approval = rollout.approval or _approval(tick, found, enforced=enforced)
    if approval:
        return promote(
            seen, approval, f"baked {format_duration(tick.spec.canary.bake)}: {found.message}"
        )
    told = "no analysis approved this candidate, and the bake cannot decide without a passed absolute objective"
    match analysis.on_undecided:
        case OnUndecided.PROCEED:
            return promote(seen, "Proceed", told)
        case OnUndecided.ABORT:
            return seen.roll_back(EndReason.ANALYSIS_UNDECIDED, told)
        case OnUndecided.PAUSE:
            return seen.pause("NotApproved", told, Phase.BAKING)


def _absolute_only(tick: Tick, judged: Rollout) -> Rollout:
    """`judged` with comparisons as the last analysis left them, for nothing is compared any more.

    Their evidence stays with their verdicts, or these would not follow from it.
    """
    absolute = {o.name for o in tick.spec.analysis.objectives if o.comparison is None}
    verdicts = {record.objective: record for record in tick.rollout.verdicts}
    evidence = {item.objective: item for item in tick.rollout.evidence}
    return replace(
        judged,
        verdicts=tuple(
            record if record.objective in absolute else verdicts.get(record.objective, record)
            for record in judged.verdicts
        ),
        evidence=tuple(
            item if item.objective in absolute else evidence.get(item.objective, item)
            for item in judged.evidence
        ),
    )


def _approval(tick: Tick, found: Analysed, *, enforced: bool) -> str:
    """Evidence, if at least one blocking objective could be judged at 100 % and all of those passed."""
    if not enforced:
        return "Preview"
    recorded = tick.spec.blue_green is not None
    judged = [
        o for o in tick.spec.analysis.objectives if o.blocking and (recorded or not o.comparison)
    ]
    return "Evidence" if judged and found.outcome is Verdict.PASS else ""
