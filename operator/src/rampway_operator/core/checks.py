"""What failed environment checks of a candidate's pods lead to, by their class.

It does not know how a check is run, nor how its result is read (`check_report.py`).
"""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.check_report import CheckClass, classify, describe
from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import CheckState, InitCheck, Pod
from rampway_operator.core.spec import OnBadNode, OnInfrastructure, PreflightMode
from rampway_operator.core.state import EndReason
from rampway_operator.core.tick import Tick

__all__ = ["on_failed_checks"]


def on_failed_checks(tick: Tick) -> Move | None:
    """The move that a new failed or hanging check asks for; each pod counts once.

    BadRevision outranks the rest: it needs no second opinion.
    """
    if tick.spec.preflight.mode is not PreflightMode.ENFORCE:
        return None
    fresh = [
        (pod, pod.check)
        for pod in tick.arms.candidate
        if pod.check is not None
        and pod.uid not in tick.rollout.handled_pods
        and (pod.check.state is CheckState.FAILED or _hangs(tick, pod.check))
    ]
    for pod, check in fresh:
        if not _hangs(tick, check) and _class(check) is CheckClass.BAD_REVISION:
            return tick.roll_back(EndReason.BAD_REVISION, describe(pod, check))
    for pod, check in fresh:
        if not _hangs(tick, check) and _class(check) is CheckClass.BAD_NODE:
            return _bad_node(tick, pod, check)
    return _infrastructure(tick, *fresh[0]) if fresh else None


def _class(check: InitCheck) -> CheckClass:
    return classify(check.exit_code, check.message)


def _hangs(tick: Tick, check: InitCheck) -> bool:
    if check.state is not CheckState.RUNNING or check.started_at is None:
        return False
    return tick.now - check.started_at > tick.spec.preflight.timeout


def _bad_node(tick: Tick, pod: Pod, check: InitCheck) -> Move:
    policy, told = tick.spec.preflight.on_failure, describe(pod, check)
    if policy.bad_node is OnBadNode.ROLLBACK:
        return tick.roll_back(EndReason.BAD_NODES, told)
    avoided = tick.rollout.avoided_nodes
    if pod.node and pod.node not in avoided:
        avoided = (*avoided, pod.node)
    if len(avoided) > policy.max_avoided_nodes:
        return tick.roll_back(
            EndReason.BAD_NODES,
            f"{len(avoided)} nodes failed, at most {policy.max_avoided_nodes} may be avoided: {told}",
        )
    rollout = replace(tick.rollout, avoided_nodes=avoided, handled_pods=_handled(tick, pod))
    return tick.moved(replace(tick.state, rollout=rollout), "NodeAvoided", told)


def _infrastructure(tick: Tick, pod: Pod, check: InitCheck) -> Move:
    policy = tick.spec.preflight.on_failure
    told = describe(pod, check)
    if _hangs(tick, check):
        timeout = format_duration(tick.spec.preflight.timeout)
        told = f"pod {pod.name} on node {pod.node or '?'}: check_env runs for more than {timeout}"
    failures = tick.rollout.infrastructure_failures + 1
    if policy.infrastructure is OnInfrastructure.ROLLBACK or failures > policy.retries:
        return tick.roll_back(
            EndReason.INFRASTRUCTURE,
            f"check_env could not run {failures} times, {policy.retries} retries are allowed: {told}",
        )
    rollout = replace(
        tick.rollout, infrastructure_failures=failures, handled_pods=_handled(tick, pod)
    )
    return tick.moved(replace(tick.state, rollout=rollout), "CheckRetried", told)


def _handled(tick: Tick, pod: Pod) -> tuple[str, ...]:
    """The counted pods that still exist, and `pod`: those that are gone need no memory."""
    existing = {p.uid for p in tick.observed.pods}
    kept = (uid for uid in tick.rollout.handled_pods if uid in existing)
    return (*kept, pod.uid)
