"""The conditions of an InferenceDeployment, in the sense of kstatus and metav1.Condition.

It does not know how a decision was taken. `Ready` speaks of what serves now, `Stalled` of what will not
move without a person or another spec, the rest of the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rampway_operator.core.capacity import amount
from rampway_operator.core.check_report import describe, unchecked
from rampway_operator.core.config_refs import missing_configs
from rampway_operator.core.observed import CheckState, Observed, Pod
from rampway_operator.core.revision import plan_digest
from rampway_operator.core.spec import PreflightMode, Spec
from rampway_operator.core.state import EndReason, FailedRevision, Phase, State, Verdict
from rampway_operator.core.status_text import instant, parse_instant, short
from rampway_operator.core.view import arms

__all__ = ["conditions", "failed_now", "invalid_conditions"]

_ENVIRONMENT = frozenset({EndReason.BAD_REVISION, EndReason.BAD_NODES})
_FOLDED = frozenset({EndReason.ANALYSIS_FAILED, EndReason.ANALYSIS_UNDECIDED})


class _Condition(NamedTuple):
    status: str
    reason: str
    message: str


def conditions(
    spec: Spec,
    observed: Observed,
    state: State,
    *,
    now: datetime,
    previous: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """All conditions, sorted by type; the time of one moves only when its status does."""
    found = {
        "Ready": _ready(spec, observed, state),
        "Reconciling": _reconciling(spec, observed, state),
        "Stalled": _stalled(spec, observed, state),
        "SpecValid": _spec_valid(spec, observed),
        "EnvironmentReady": _environment(spec, observed, state),
        "AnalysisPassing": _analysis(spec, observed, state),
        "RolloutComplete": _complete(spec, observed, state),
    }
    return _write(found, observed.generation, now, previous)


def invalid_conditions(
    faults: Sequence[str], *, generation: int, now: datetime, previous: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The conditions of an object whose spec is refused; those of the running revision stay as they were."""
    message = "; ".join(faults)
    found = {
        "SpecValid": _Condition("False", "InvalidSpec", message),
        "Stalled": _Condition("True", "InvalidSpec", message),
        "Reconciling": _Condition(
            "False", "InvalidSpec", "nothing is done before the spec is valid"
        ),
    }
    kept = {
        kind: _Condition(*(str(old.get(part, "")) for part in ("status", "reason", "message")))
        for kind, old in _by_type(previous).items()
        if kind not in found
    }
    kept.setdefault("Ready", _Condition("False", "InvalidSpec", "no revision was ever deployed"))
    return _write({**kept, **found}, generation, now, previous, limit=2000)


def failed_now(spec: Spec, observed: Observed, state: State) -> FailedRevision | None:
    """The record that this very spec was tried and failed; None when it may be tried."""
    if state.stable is not None and state.stable.hash == observed.spec_hash:
        return None
    for item in state.failed:
        if item.hash == observed.spec_hash and item.plan in ("", plan_digest(spec)):
            return item
    return None


def _ready(spec: Spec, observed: Observed, state: State) -> _Condition:
    parts = arms(observed)
    serving = sum(
        pod.ready and pod.in_rotation for pod in (*parts.stable, *parts.candidate, *parts.baseline)
    )
    needed = spec.replicas - amount(spec.pdb_max_unavailable, spec.replicas, round_up=False)
    message = f"{serving} of {spec.replicas} pods serve"
    if state.stable is None and state.rollout is None and serving == 0:
        return _Condition("False", "NothingServes", f"{message}: no revision was ever promoted")
    if serving >= max(needed, min(1, spec.replicas)):
        return _Condition("True", "Serving", message)
    return _Condition("False", "TooFewPods", message)


def _reconciling(spec: Spec, observed: Observed, state: State) -> _Condition:
    if state.phase is not Phase.IDLE:
        return _Condition("True", state.phase.value, "a rollout is under way")
    stable = arms(observed).stable
    ready = sum(pod.ready for pod in stable)
    if state.stable is not None and (ready != spec.replicas or len(stable) != spec.replicas):
        return _Condition("True", "Scaling", f"{ready} of {spec.replicas} stable pods are ready")
    pending = (
        not observed.foreign
        and not missing_configs(spec, observed)
        and failed_now(spec, observed, state) is None
        and (state.stable is None or state.stable.hash != observed.spec_hash)
    )
    if pending:
        return _Condition("True", "RolloutPending", "a rollout of the current spec has not begun")
    return _Condition("False", "Settled", "nothing is under way")


def _stalled(spec: Spec, observed: Observed, state: State) -> _Condition:
    if observed.foreign:
        return _Condition("True", "NameConflict", _conflict(observed))
    if fault := missing_configs(spec, observed):
        return _Condition("True", "ConfigMissing", fault)
    failed = failed_now(spec, observed, state)
    if state.phase is Phase.IDLE and failed is not None:
        detail = state.history[-1].message if state.history else ""
        return _Condition(
            "True",
            failed.reason.value,
            f"revision {failed.hash} is not tried again before the spec changes or a retry command: {detail}",
        )
    return _Condition("False", "NotStalled", "nothing keeps the spec from being carried out")


def _spec_valid(spec: Spec, observed: Observed) -> _Condition:
    if observed.foreign:
        return _Condition("False", "NameConflict", _conflict(observed))
    if fault := missing_configs(spec, observed):
        return _Condition("False", "ConfigMissing", fault)
    missing = observed.scrape.missing_metrics
    if missing:
        return _Condition(
            "False", "MetricMissing", f"the engine does not export {', '.join(missing)}"
        )
    return _Condition("True", "Valid", "every field is usable")


def _conflict(observed: Observed) -> str:
    return (
        f"{', '.join(observed.foreign)} exist and belong to someone else: "
        "delete them or rename this InferenceDeployment"
    )


def _environment(spec: Spec, observed: Observed, state: State) -> _Condition:
    if spec.preflight.mode is PreflightMode.OFF:
        return _Condition("Unknown", "PreflightOff", "spec.preflight.mode is Off")
    parts = arms(observed)
    pods = parts.candidate or parts.stable
    bad = [p for p in pods if p.check is not None and p.check.state is CheckState.FAILED]
    ended = state.rollout.end_reason if state.rollout is not None else None
    failed = failed_now(spec, observed, state)
    if ended in _ENVIRONMENT and state.rollout is not None:
        return _Condition("False", ended.value, state.rollout.end_message)
    if failed is not None and failed.reason in _ENVIRONMENT and state.rollout is None:
        detail = state.history[-1].message if state.history else ""
        return _Condition("False", failed.reason.value, detail)
    passed = sum(p.check is not None and p.check.state is CheckState.PASSED for p in pods)
    told = f"check_env passed on {passed} of {len(pods)} pods{_check_notes(spec, state, pods)}"
    if bad and bad[0].check is not None:
        first = describe(bad[0], bad[0].check)
        return _Condition("False", "CheckFailed", f"{told}, failed on {len(bad)}: {first}")
    if pods and passed == len(pods):
        return _Condition("True", "Passed", told)
    return _Condition("Unknown", "Checking", told)


def _check_notes(spec: Spec, state: State, pods: Sequence[Pod]) -> str:
    """What the numbers of passed pods do not say: nodes avoided, retries, checks that were not made."""
    notes, policy = [], spec.preflight.on_failure
    if state.rollout is not None and state.rollout.avoided_nodes:
        nodes = state.rollout.avoided_nodes
        notes.append(
            f"{len(nodes)} of {policy.max_avoided_nodes} nodes avoided ({', '.join(nodes)})"
        )
    if state.rollout is not None and state.rollout.infrastructure_failures:
        failures = state.rollout.infrastructure_failures
        notes.append(f"{failures} of {policy.retries} retries used")
    missing = unchecked(pods)
    if missing:
        notes.append(f"not checked in preflight.image: {', '.join(missing)}")
    return "".join(f"; {note}" for note in notes)


def _analysis(  # noqa: PLR0911 - one exit a reason
    spec: Spec, observed: Observed, state: State
) -> _Condition:
    rollout = state.rollout
    if rollout is None:
        failed = failed_now(spec, observed, state)
        if failed is not None and failed.reason in _FOLDED and state.history:
            return _Condition("False", failed.reason.value, state.history[-1].message)
        if state.history and state.history[-1].outcome is EndReason.PROMOTED:
            return _Condition("True", "Promoted", state.history[-1].message)
        return _Condition("Unknown", "NotAnalyzed", "no rollout is judged")
    if rollout.end_reason in _FOLDED:
        return _Condition("False", rollout.end_reason.value, rollout.end_message)
    blocking = {o.name for o in spec.analysis.objectives if o.blocking}
    records = [r for r in rollout.verdicts if r.objective in blocking]
    message = "; ".join(r.message for r in records)
    if any(r.verdict is Verdict.FAIL for r in records):
        return _Condition("False", "Fail", message)
    if records and all(r.verdict is Verdict.PASS for r in records):
        return _Condition("True", "Pass", message)
    return _Condition(
        "Unknown", "Undecided" if records else "NoData", message or "nothing was measured yet"
    )


def _complete(spec: Spec, observed: Observed, state: State) -> _Condition:
    if state.phase is not Phase.IDLE:
        return _Condition("False", "InProgress", f"the rollout is in phase {state.phase.value}")
    detail = state.history[-1].message if state.history else ""
    if state.stable is not None and state.stable.hash == observed.spec_hash:
        return _Condition("True", "Promoted", detail or f"revision {state.stable.hash} is stable")
    if failed_now(spec, observed, state) is not None:
        return _Condition("True", "RolledBack", detail)
    return _Condition("False", "Pending", "a rollout of the current spec has not begun")


def _by_type(status: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    listed = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(listed, list):
        return {}
    return {
        str(item["type"]): item for item in listed if isinstance(item, Mapping) and "type" in item
    }


def _write(
    found: Mapping[str, _Condition],
    generation: int,
    now: datetime,
    previous: Mapping[str, Any] | None,
    limit: int = 600,
) -> list[dict[str, Any]]:
    before, result = _by_type(previous), []
    for kind in sorted(found):
        status, reason, message = found[kind]
        old = before.get(kind, {})
        since = (
            parse_instant(old.get("lastTransitionTime")) if old.get("status") == status else None
        )
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason or "Unknown",
                "message": short(message, limit),
                "lastTransitionTime": instant((since or now).replace(microsecond=0)),
                "observedGeneration": max(0, generation),
            }
        )
    return result
