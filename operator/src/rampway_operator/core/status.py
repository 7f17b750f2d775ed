"""Writes everything remembered, and what people want to see, as the `.status` of an InferenceDeployment.

It does not know how status reaches the API server; `status_read.py` is its inverse.

Shape (absent instead of null; decimals and floats are strings; instants are RFC 3339 in UTC):

    observedGeneration: int
    phase: str                     reason: str          waitingFor: str
    replicas: int                  readyReplicas: int   selector: str      (the stable revision's own pods)
    lastNumber: int                httpRoute: bool
    stableRevision:    {hash: str, number: int, image: str}
    candidateRevision: {hash: str, number: int, image: str, attempt: int}
    lastCommand: {id: str, result: str}
    failedRevisions: [{hash: str, reason: str, generation: int, plan: str}]                       (max 5)
    rollout:
      startedAt, phaseStartedAt: time
      step:   {index: int, total: int, type: str, display: str, startedAt: time}
      weight: {desired: int, verified: int, note: str, applied: int, observed: str, requests: int}
      pods:   {candidate: int, candidateReady: int, baseline: int, baselineReady: int}
      cache:  {state: str, warm: bool, warmedUntil: time, candidateHitRate: str, baselineHitRate: str,
               requestsSent: int}
      preflight: {passed: int, failed: int, infrastructureFailures: int, avoidedNodes: [str],
                  handledPods: [str], failures: [{pod: str, node: str, exitCode: int, message: str}]}
      paused: {from: str, reason: str}
      end:    {reason: str, message: str, successorPending: bool, hard: bool}
      strategy: str  recorded: [str]
      plan: str      approval: str      weightLosses: int      outageSince, stableDownSince: time
      evidence: [{objective: str, sums: str, stepSums: str, referenceEdge: str, candidateEdge: str,
                  planning: str, alphaSpent: str, stepAlphaSpent: str, looks: int, ...}]
      verdicts: [{objective: str, verdict: str, n: int, nReference: int, windows: int, estimate: str,
                  low: str, high: str, margin: str, alphaSpent: str, candidateValue: str,
                  referenceValue: str, needed: int, message: str}]
    conditions: [{type, status, reason, message, lastTransitionTime, observedGeneration}]
    history:    [{number, hash, image, outcome, message, startedAt, endedAt}]                    (max 20)
    decisions:  [{at, reason, message, revision}]                                                (max 20)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rampway_operator.core.conditions import conditions, invalid_conditions
from rampway_operator.core.names import LABEL_NAME, LABEL_POOL, LABEL_REVISION
from rampway_operator.core.observed import Observed, Pool
from rampway_operator.core.phases import PROGRESSING
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Decision, FailedRevision, HistoryEntry, Revision, State
from rampway_operator.core.status_read import state_from_status
from rampway_operator.core.status_rollout import rollout_to_dict
from rampway_operator.core.status_text import instant, parse_numbers, short
from rampway_operator.core.view import arms, find_set, lacks_capacity

__all__ = ["MAX_BYTES", "invalid_status", "state_from_status", "status_from_state"]

MAX_BYTES = 16 * 1024
"""Larger objects make every watch event dear, and etcd's limit is shared with the spec."""


def status_from_state(
    spec: Spec,
    observed: Observed,
    state: State,
    *,
    now: datetime,
    waiting_for: str = "",
    previous: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole status; `previous` is the one that was read, so that unchanged conditions keep their times.

    Always below MAX_BYTES: the oldest decisions, then long messages, then the oldest history go first;
    what decisions rest on stays, rounded to ten digits at worst.
    """
    status: dict[str, Any] = {
        "observedGeneration": max(state.observed_generation, observed.generation),
        "phase": state.phase.value,
        "reason": _reason(observed, state),
        "waitingFor": short(waiting_for),
        **_stable_part(observed, state),
        "lastNumber": state.last_number,
        "httpRoute": state.route_made,
        "conditions": conditions(spec, observed, state, now=now, previous=previous),
        "failedRevisions": [_failed(item) for item in state.failed],
        "history": [_history(item) for item in state.history],
        "decisions": [_decision(item) for item in state.decisions],
    }
    if state.last_command is not None:
        status["lastCommand"] = {
            "id": short(state.last_command.id),
            "result": short(state.last_command.result),
        }
    if state.rollout is not None:
        status["rollout"] = rollout_to_dict(spec, observed, state.phase, state.rollout)
        status["candidateRevision"] = {
            **_revision(state.rollout.candidate),
            "attempt": state.rollout.attempt,
        }
    return _fit(status)


def invalid_status(
    faults: Sequence[str],
    *,
    generation: int,
    now: datetime,
    previous: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The status of an object whose spec cannot be used: all that was remembered, and every fault.

    What serves keeps serving; `observedGeneration` moves on, so that waiting tools see the refusal.
    """
    kept = dict(previous) if isinstance(previous, Mapping) else {}
    seen = kept.get("observedGeneration")
    known = seen if isinstance(seen, int) else -1
    return _fit(
        {
            **kept,
            "observedGeneration": max(known, generation),
            "phase": kept.get("phase") if isinstance(kept.get("phase"), str) else "Idle",
            "reason": "InvalidSpec",
            "waitingFor": "a valid spec: see the condition SpecValid",
            "conditions": invalid_conditions(faults, generation=generation, now=now, previous=kept),
        }
    )


def _stable_part(observed: Observed, state: State) -> dict[str, Any]:
    """What /scale and HPA read: the stable revision's own pods, never the candidate's or the baseline's."""
    if state.stable is None:
        return {
            "replicas": 0,
            "readyReplicas": 0,
            # Matches no pod: an autoscaler must not count a candidate while nothing is stable.
            "selector": f"{LABEL_NAME}={observed.name},{LABEL_REVISION}=none",
        }
    found = find_set(observed, state.stable.hash, Pool.MAIN)
    return {
        "replicas": found.replicas if found is not None else 0,
        "readyReplicas": sum(pod.ready for pod in arms(observed).stable),
        "selector": (
            f"{LABEL_NAME}={observed.name},{LABEL_REVISION}={state.stable.hash},"
            f"{LABEL_POOL}={Pool.MAIN.value}"
        ),
        "stableRevision": _revision(state.stable),
    }


def _reason(observed: Observed, state: State) -> str:
    rollout = state.rollout
    if rollout is not None and rollout.end_reason is not None:
        return rollout.end_reason.value
    if rollout is not None and rollout.paused_reason:
        return rollout.paused_reason
    if rollout is not None:
        lacking = state.phase in PROGRESSING and lacks_capacity(observed, state)
        return "InsufficientCapacity" if lacking else "RolloutInProgress"
    if state.history:
        return state.history[-1].outcome.value
    return "NothingToDo" if state.stable is not None else "Waiting"


def _revision(item: Revision) -> dict[str, Any]:
    return {"hash": item.hash, "number": item.number, "image": item.image}


def _failed(item: FailedRevision) -> dict[str, Any]:
    return {
        "hash": item.hash,
        "reason": item.reason.value,
        "generation": item.generation,
        "plan": item.plan,
    }


def _history(item: HistoryEntry) -> dict[str, Any]:
    return {
        "number": item.number,
        "hash": item.hash,
        "image": item.image,
        "outcome": item.outcome.value,
        "message": short(item.message),
        "startedAt": instant(item.started_at),
        "endedAt": instant(item.ended_at),
    }


def _decision(item: Decision) -> dict[str, Any]:
    return {
        "at": instant(item.at),
        "reason": item.reason,
        "message": short(item.message),
        "revision": item.revision,
    }


def _size(status: dict[str, Any]) -> int:
    return len(json.dumps(status, ensure_ascii=False, separators=(",", ":")).encode())


def _fit(status: dict[str, Any]) -> dict[str, Any]:
    decisions, history = status.get("decisions"), status.get("history")
    while _size(status) >= MAX_BYTES and isinstance(decisions, list) and len(decisions) > 3:
        decisions = status["decisions"] = decisions[1:]
    if _size(status) >= MAX_BYTES:
        _cut_messages(status, 60)
    while _size(status) >= MAX_BYTES and isinstance(history, list) and len(history) > 1:
        history = status["history"] = history[1:]
    while _size(status) >= MAX_BYTES and isinstance(decisions, list) and decisions:
        decisions = status["decisions"] = decisions[1:]
    recorded = status.get("rollout", {}).get("recorded")
    while _size(status) >= MAX_BYTES and recorded:
        recorded = status["rollout"]["recorded"] = recorded[1:]
    if _size(status) >= MAX_BYTES:
        _round_evidence(status)
    return status


def _round_evidence(status: dict[str, Any]) -> None:
    """The last resort, with many objectives: ten digits are more than any verdict can tell apart.

    The sentences of verdicts go, too; their numbers say the same.
    """
    for item in status.get("rollout", {}).get("verdicts", ()):
        item["message"] = ""
    for item in status.get("rollout", {}).get("evidence", ()):
        for key, text in item.items():
            values = parse_numbers(text) if key not in ("objective", "definition") else None
            if values:
                item[key] = " ".join(f"{value:.10g}" for value in values)


def _cut_messages(value: Any, limit: int) -> None:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        _cut_messages(item, limit)
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value["message"] = short(value["message"], limit)
