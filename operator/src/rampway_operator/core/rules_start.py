"""The phases before traffic: Idle, Preflight, Provisioning.

It does not know what is unsafe in every phase (`rules_safety.py`) nor how pods are made (`plan.py`).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from rampway_operator.core import gateway
from rampway_operator.core.capacity import surge
from rampway_operator.core.conditions import failed_now
from rampway_operator.core.config_refs import missing_configs
from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import CheckState, Pod
from rampway_operator.core.revision import run_digest, strategy_of
from rampway_operator.core.rules_blue_green import missing_record
from rampway_operator.core.spec import PreflightMode
from rampway_operator.core.state import EndReason, Phase, Revision, Rollout
from rampway_operator.core.steps import pods_are_there, unverified
from rampway_operator.core.tick import IDLE_RESYNC, ROLLOUT_RESYNC, SETTLED_RESYNC, Tick
from rampway_operator.core.view import lacks_capacity, weight_before

__all__ = ["on_idle", "on_preflight", "on_provisioning", "start"]

HASTE = timedelta(seconds=2)


def on_idle(tick: Tick) -> Move:  # noqa: PLR0911 - one exit a reason to wait
    """Nothing, or the start of a rollout when the spec asks for another revision."""
    state, wanted = tick.state, tick.observed.spec_hash
    if missing := missing_configs(tick.spec, tick.observed):
        return tick.stay(missing, after=IDLE_RESYNC)
    if tick.observed.foreign:
        return tick.stay(
            f"{', '.join(tick.observed.foreign)} to be gone: they belong to someone else"
        )
    if state.stable is not None and state.stable.hash == wanted:
        ready = sum(p.ready for p in tick.arms.stable)
        if ready != tick.spec.replicas or len(tick.arms.stable) != tick.spec.replicas:
            told = f"{ready} of {tick.spec.replicas} stable pods are ready"
            return tick.stay(told, after=ROLLOUT_RESYNC)
        # ConfigMaps of the user are not watched.
        return tick.stay("", after=IDLE_RESYNC if tick.spec.config_refs else SETTLED_RESYNC)
    failed = failed_now(tick.spec, tick.observed, state)
    if failed is not None:
        return tick.stay(
            f"another spec or a retry command: revision {wanted} ended with {failed.reason.value}",
            after=IDLE_RESYNC,
        )
    if tick.spec.paused:
        return tick.stay("spec.paused to be false", after=IDLE_RESYNC)
    if tick.spec.replicas == 0:
        return tick.stay("replicas to be above 0", after=IDLE_RESYNC)
    return start(tick, "RolloutStarted")


def start(tick: Tick, reason: str) -> Move:
    """A new rollout of the revision that the spec asks for, numbered anew, from its first step."""
    state, wanted = tick.state, tick.observed.spec_hash
    number = max(state.last_number, *(s.number for s in tick.observed.replica_sets), 0) + 1
    attempt = 1 + sum(
        item.hash == wanted and item.outcome is not EndReason.PROMOTED for item in state.history
    )
    checks = tick.spec.preflight.mode is not PreflightMode.OFF
    rollout = Rollout(
        candidate=Revision(wanted, number, tick.spec.engine.image),
        attempt=attempt,
        started_at=tick.now,
        phase_started_at=tick.now,
        step_started_at=tick.now,
        plan=run_digest(tick.spec),
        strategy=strategy_of(tick.spec),
    )
    begun = replace(
        state,
        phase=Phase.PREFLIGHT if checks else Phase.PROVISIONING,
        rollout=rollout,
        last_number=number,
    )
    against = f"against {state.stable.hash}" if state.stable is not None else "as the first one"
    message = f"revision {wanted} (number {number}, attempt {attempt}) is tried {against}"
    return tick.moved(begun, reason, message)


def on_preflight(tick: Tick) -> Move:
    """check_env on every planned pod; failures are judged by `checks.py` before this is asked."""
    planned, pods = tick.aim.pods.candidate, tick.arms.candidate
    passed = [p for p in pods if _checked(tick, p)]
    if len(passed) >= planned > 0:
        message = f"check_env passed on {len(passed)} of {planned} pods"
        if tick.spec.preflight.mode is PreflightMode.WARN:
            failed = sum(p.check is not None and p.check.state is CheckState.FAILED for p in pods)
            message = f"check_env ran on {len(passed)} pods and only warns; {failed} failed"
        return tick.enter(Phase.PROVISIONING, "PreflightPassed", message)
    over = _deadline(tick)
    return over or tick.stay(
        f"check_env passed on {len(passed)} of {planned} pods{_hint(tick)}", after=HASTE
    )


def _checked(tick: Tick, pod: Pod) -> bool:
    """Whether this pod's check is behind it; a pod without one was made before preflight was on."""
    if pod.check is None or pod.check.state is CheckState.PASSED:
        return True
    return tick.spec.preflight.mode is not PreflightMode.ENFORCE and (
        pod.check.state is CheckState.FAILED or pod.engine_started
    )


def on_provisioning(tick: Tick) -> Move:
    """All planned pods can serve: ready for minReadySeconds, and one real token answered."""
    planned, can = tick.aim.pods, len(tick.candidates)
    if can < planned.candidate:
        told = f"{can} of {planned.candidate} candidate pods can serve{_hint(tick)}"
        return _deadline(tick) or tick.stay(told, after=HASTE)
    if tick.state.stable is None:
        return _first_deployment(tick)
    if record := missing_record(tick):
        return tick.stay(record, after=ROLLOUT_RESYNC)
    held = _unmeasured(tick) or _await_baseline(tick)
    if held is not None:
        return held
    told = f"{can} candidate and {planned.baseline} baseline pods can serve"
    if tick.cold:
        return tick.enter(Phase.WARMING, "PodsReady", f"{told}, {len(tick.cold)} are cold")
    return pods_are_there(tick, "PodsReady", told)


def _unmeasured(tick: Tick) -> Move | None:
    """The pause before any weight when a live scrape lacks what an objective needs: it could never pass."""
    missing, rollout = tick.observed.scrape.missing_metrics, tick.rollout
    if not missing or rollout.verified_weight > 0 or rollout.approval:
        return None
    return tick.pause(
        "MetricMissing",
        f"before any traffic: the engine does not export {', '.join(missing)}",
        Phase.PROVISIONING,
    )


def _await_baseline(tick: Tick) -> Move | None:
    """What missing baseline pods lead to, if any of those that are due is missing."""
    planned = tick.aim.pods
    missing = planned.baseline - len(tick.baselines) if _baseline_is_due(tick) else 0
    if missing <= 0:
        return None
    told = f"{planned.baseline - missing} of {planned.baseline} baseline pods can serve"
    waited = tick.in_phase
    if tick.spec.traffic.gateway is not None and tick.rollout.desired_weight > 0:
        # Stable makes room for the baseline once requests reach the candidate.
        traffic = gateway.check(tick)
        if traffic.overdue:
            return unverified(tick, traffic.told)
        if not tick.observed.served.busy:
            return tick.stay(f"{told}; no requests come", after=HASTE)
        waited = min(waited, tick.observed.served.busy)
    if waited > tick.spec.progress_deadline:
        return tick.pause("BaselineUnavailable", f"{told} after the deadline", Phase.PROVISIONING)
    return tick.stay(told, after=HASTE)


def _first_deployment(tick: Tick) -> Move:
    message = (
        f"{len(tick.candidates)} of {tick.spec.replicas} pods can serve; "
        "comparisons are skipped (NoStable)"
    )
    return tick.enter(
        Phase.SHIFTING,
        "PodsReady",
        message,
        desired_weight=100,
        step_index=len(tick.spec.canary.steps),
        approval="NoStable",
    )


def _baseline_is_due(tick: Tick) -> bool:
    """Whether the baseline can exist yet: before the first weight only where it fits beside all stable pods."""
    if tick.rollout.desired_weight > 0:
        return True
    planned = tick.aim.pods
    limit = tick.spec.replicas + surge(tick.spec)
    return tick.spec.replicas + planned.candidate + planned.baseline <= limit


def _deadline(tick: Tick) -> Move | None:
    """The end of a phase in which nothing came of the candidate's pods, with the likeliest reason."""
    if tick.in_phase <= tick.spec.progress_deadline:
        return None
    after = f"after {format_duration(tick.spec.progress_deadline)} in {tick.state.phase.value}"
    rotation = tick.rotation()
    if tick.state.stable is not None and tick.observed.routed != rotation.ready:
        last = weight_before(tick.spec, tick.rollout.step_index)
        return tick.pause(
            "TrafficUnverified",
            f"endpoints do not agree with the pods in rotation {after}, back to {last} %",
            Phase.PROVISIONING,
            desired_weight=last,
            verified_weight=tick.routed_weight(),
        )
    if lacking := lacks_capacity(tick.observed, tick.state):
        return tick.roll_back(
            EndReason.INSUFFICIENT_CAPACITY,
            f"{len(tick.arms.candidate)} of {tick.aim.pods.candidate} pods could be had {after}, which says "
            f"nothing against the revision: {lacking}",
        )
    died = next((p for p in tick.arms.candidate if p.engine_restarts or p.engine_last_exit), None)
    if died is not None:
        return tick.roll_back(
            EndReason.CANDIDATE_UNAVAILABLE,
            f"pod {died.name} is not ready {after}: {died.engine_last_exit}",
        )
    smoke = next((e for u, e in tick.observed.smoke_errors.items() if _is_candidate(tick, u)), "")
    if smoke:
        return tick.roll_back(EndReason.SMOKE_FAILED, f"no real token {after}: {smoke}")
    return tick.roll_back(
        EndReason.PROGRESS_DEADLINE_EXCEEDED,
        f"{len(tick.candidates)} pods can serve {after}",
        hard=True,
    )


def _is_candidate(tick: Tick, uid: str) -> bool:
    return any(p.uid == uid for p in tick.arms.candidate)


def _hint(tick: Tick) -> str:
    """What holds the pods up, as far as it shows."""
    if lacking := lacks_capacity(tick.observed, tick.state):
        return f"; InsufficientCapacity: {lacking}"
    for pod in tick.arms.candidate:
        check_waits = pod.check.waiting_reason if pod.check is not None else ""
        reason = check_waits or pod.engine_waiting_reason
        reason = reason or tick.observed.smoke_errors.get(pod.uid, "")
        if reason and reason not in ("PodInitializing", "ContainerCreating"):
            return f"; {pod.name}: {reason}"
    return ""
