"""The `rollout` part of status: where it stands, with all the numbers that decisions rest on.

It does not know the rest of status.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rampway_operator.core.observed import Arm, CheckState, Observed, Pod
from rampway_operator.core.routed import weights
from rampway_operator.core.served import judge
from rampway_operator.core.spec import (
    AnalysisStep,
    PauseStep,
    SetWeightStep,
    Spec,
    Step,
    WarmupStep,
)
from rampway_operator.core.state import Evidence, Phase, Rollout, Sums, VerdictRecord
from rampway_operator.core.status_text import camel, instant, number, numbers, short
from rampway_operator.core.view import arms

__all__ = ["rollout_to_dict", "step_name"]

MAX_FAILURES = 8


def step_name(step: Step) -> str:
    """The name that the step has in a spec."""
    match step:
        case SetWeightStep():
            return "setWeight"
        case AnalysisStep():
            return "analysis"
        case PauseStep():
            return "pause"
        case WarmupStep():
            return "warmup"


def rollout_to_dict(
    spec: Spec, observed: Observed, phase: Phase, rollout: Rollout
) -> dict[str, Any]:
    """The rollout as status holds it; `status_read.read_rollout` reads it back."""
    parts = arms(observed)
    checked = (*parts.candidate, *parts.baseline)
    result: dict[str, Any] = {
        "startedAt": instant(rollout.started_at),
        "phaseStartedAt": instant(rollout.phase_started_at),
        "step": _step(spec, phase, rollout),
        "weight": {
            "desired": rollout.desired_weight,
            "verified": rollout.verified_weight,
            "note": short(rollout.weight_note),
            **_seen(spec, observed, rollout),
        },
        "pods": {
            "candidate": len(parts.candidate),
            "candidateReady": sum(p.ready for p in parts.candidate),
            "baseline": len(parts.baseline),
            "baselineReady": sum(p.ready for p in parts.baseline),
        },
        "cache": _cache(spec, observed, phase, rollout),
        "preflight": _preflight(rollout, checked),
        "strategy": rollout.strategy,
        "plan": rollout.plan,
        "approval": rollout.approval,
        "weightLosses": rollout.weight_losses,
        "evidence": [_evidence(item) for item in rollout.evidence],
        "verdicts": [_verdict(item) for item in rollout.verdicts],
        "end": {
            "message": short(rollout.end_message),
            "successorPending": rollout.successor_pending,
            "hard": rollout.hard,
        },
    }
    if rollout.end_reason is not None:
        result["end"]["reason"] = rollout.end_reason.value
    if rollout.recorded:
        result["recorded"] = [numbers(window) for window in rollout.recorded]
    if rollout.outage_since is not None:
        result["outageSince"] = instant(rollout.outage_since)
    if rollout.stable_down_since is not None:
        result["stableDownSince"] = instant(rollout.stable_down_since)
    if rollout.paused_from is not None or rollout.paused_reason:
        result["paused"] = {"reason": rollout.paused_reason}
        if rollout.paused_from is not None:
            result["paused"]["from"] = rollout.paused_from.value
    return result


def _seen(spec: Spec, observed: Observed, rollout: Rollout) -> dict[str, Any]:
    """What the HTTPRoute says and what the pods counted; nothing without one."""
    if spec.traffic.gateway is None:
        return {}
    applied = weights(observed)
    sticky = bool(spec.traffic.affinity_header)
    found = judge(observed.served, applied, rollout.verified_weight, sticky=sticky)
    return {
        "applied": applied.get(Arm.CANDIDATE, 0),
        "observed": f"{found.share(Arm.CANDIDATE):.1f}",
        "requests": found.requests,
    }


def _step(spec: Spec, phase: Phase, rollout: Rollout) -> dict[str, Any]:
    steps, index = spec.canary.steps, rollout.step_index
    past_the_end = index >= len(steps)
    kind = "promote" if past_the_end else step_name(steps[index])
    if phase is Phase.BAKING:
        kind = "bake"
    shown = min(index + 1, len(steps))
    step: dict[str, Any] = {
        "index": index,
        "total": len(steps),
        "type": kind,
        "display": f"{shown}/{len(steps)} {kind}",
    }
    if rollout.step_started_at is not None:
        step["startedAt"] = instant(rollout.step_started_at)
    return step


def _cache(spec: Spec, observed: Observed, phase: Phase, rollout: Rollout) -> dict[str, Any]:
    progress = observed.warmup
    state = "Steady" if rollout.warm else "Warming" if phase is Phase.WARMING else "Cold"
    if spec.warmup.prompt_config_map is None:
        state = "NotWarmed"
    cache: dict[str, Any] = {
        "state": state,
        "warm": rollout.warm,
        "requestsSent": progress.requests_sent,
    }
    if rollout.warmed_until is not None:
        cache["warmedUntil"] = instant(rollout.warmed_until)
    if progress.candidate_rounds:
        cache["candidateHitRate"] = f"{progress.candidate_rounds[-1]:.4f}"
    if progress.baseline_rounds:
        cache["baselineHitRate"] = f"{progress.baseline_rounds[-1]:.4f}"
    return cache


def _preflight(rollout: Rollout, pods: tuple[Pod, ...]) -> dict[str, Any]:
    failed = [p for p in pods if p.check is not None and p.check.state is CheckState.FAILED]
    return {
        "passed": sum(p.check is not None and p.check.state is CheckState.PASSED for p in pods),
        "failed": len(failed),
        "infrastructureFailures": rollout.infrastructure_failures,
        "avoidedNodes": list(rollout.avoided_nodes),
        "handledPods": list(rollout.handled_pods),
        "failures": [
            {
                "pod": pod.name,
                "node": pod.node or "",
                "exitCode": pod.check.exit_code if pod.check.exit_code is not None else -1,
                "message": short(pod.check.message, 200),
            }
            for pod in failed[:MAX_FAILURES]
            if pod.check is not None
        ],
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    """Every field that is not its default, by its kind: a new one of the statistics needs nothing here."""
    values = ((field, getattr(item, field.name)) for field in fields(item))
    return {camel(field.name): _encode(value) for field, value in values if value != field.default}


def _encode(value: object) -> str | int:
    if isinstance(value, Sums):
        return numbers(getattr(value, f.name) for f in fields(value))
    if isinstance(value, tuple):
        return numbers(value)
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int | str):
        return value
    raise TypeError(f"evidence cannot be stored: got {type(value).__name__}")


def _verdict(item: VerdictRecord) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if value is None:
            continue
        text = field.name == "message"
        record[camel(field.name)] = (
            short(value)
            if text
            else number(value)
            if isinstance(value, float)
            else str(value)
            if isinstance(value, str)
            else value
        )
    return record
