"""Sorts what was observed into arms and says which pods can serve. It decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from rampway_operator.core.capacity import Layout, before_traffic, layout
from rampway_operator.core.observed import CheckState, Observed, Pod, Pool, ReplicaSet
from rampway_operator.core.spec import SetWeightStep, Spec
from rampway_operator.core.state import Phase, Rollout, State

__all__ = [
    "Aim",
    "Arms",
    "aim",
    "arms",
    "find_set",
    "is_available",
    "lacks_capacity",
    "next_weight",
    "weight_before",
]


@dataclass(frozen=True, slots=True)
class Arms:
    """The live (not deleting) pods by part; `retired` are those of no revision that matters now."""

    stable: tuple[Pod, ...]
    candidate: tuple[Pod, ...]
    baseline: tuple[Pod, ...]
    retired: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Aim:
    """Where the stored state wants the cluster to be: pods wanted, and pods wanted in rotation."""

    pods: Layout
    rotation: Layout


def candidate_hash(state: State) -> str | None:
    """The hash of the revision on trial; None when there is none, and after promotion."""
    rollout = state.rollout
    if rollout is None or (
        state.stable is not None and state.stable.hash == rollout.candidate.hash
    ):
        return None
    return rollout.candidate.hash


def arms(observed: Observed) -> Arms:
    """The live pods sorted by the part that their revision and pool play in the stored state."""
    stable = observed.state.stable
    stable_hash = stable.hash if stable is not None else None
    trial = candidate_hash(observed.state)
    sorted_pods: dict[str, list[Pod]] = {
        "stable": [],
        "candidate": [],
        "baseline": [],
        "retired": [],
    }
    for pod in observed.pods:
        if pod.deleting:
            continue
        key = "retired"
        if pod.pool is Pool.MAIN and pod.hash == stable_hash:
            key = "stable"
        elif pod.pool is Pool.MAIN and pod.hash == trial:
            key = "candidate"
        elif pod.pool is Pool.BASELINE and pod.hash == stable_hash:
            key = "baseline"
        sorted_pods[key].append(pod)
    return Arms(**{name: tuple(pods) for name, pods in sorted_pods.items()})


def find_set(observed: Observed, revision: str, pool: Pool) -> ReplicaSet | None:
    """Our ReplicaSet of a revision and pool, if it exists."""
    for item in observed.replica_sets:
        if item.hash == revision and item.pool is pool:
            return item
    return None


def lacks_capacity(observed: Observed, state: State) -> str:
    """What keeps pods of the revision on trial from being made or placed: quota, admission, no room.

    Empty when nothing does. It is never the candidate's fault.
    """
    trial = candidate_hash(state)
    found = find_set(observed, trial, Pool.MAIN) if trial is not None else None
    if found is not None and found.failure:
        return found.failure
    waiting = [p for p in arms(observed).candidate if p.unschedulable]
    return f"pod {waiting[0].name} fits nowhere: {waiting[0].unschedulable}" if waiting else ""


def is_available(pod: Pod, spec: Spec, observed: Observed, now: datetime) -> bool:
    """Whether a new pod may take traffic: ready for minReadySeconds, checked, and one real token answered.

    A pod in rotation has passed this once: the smoke answers are lost when the operator restarts.
    """
    if not pod.ready or pod.deleting:
        return False
    if pod.in_rotation:
        return True
    if pod.check is not None and pod.check.state is not CheckState.PASSED:
        return False
    since = pod.ready_since or pod.created_at
    return pod.uid in observed.smoked and now - since >= timedelta(seconds=spec.min_ready_seconds)


def weight_before(spec: Spec, step_index: int) -> int:
    """The weight that the steps before `step_index` lead to, in percent."""
    weights = [s.weight for s in spec.canary.steps[:step_index] if isinstance(s, SetWeightStep)]
    return weights[-1] if weights else 0


def next_weight(spec: Spec, step_index: int) -> int:
    """The weight of the first setWeight step from `step_index` on; 100 when there is none."""
    for step in spec.canary.steps[step_index:]:
        if isinstance(step, SetWeightStep):
            return step.weight
    return 100


def aim(spec: Spec, state: State) -> Aim:
    """What the stored state wants of the cluster. It does not move by what this tick sees."""
    rollout, everything = state.rollout, Layout(0, 0, spec.replicas, spec.replicas)
    if rollout is None or candidate_hash(state) is None:
        return Aim(everything, everything)
    if state.stable is None:
        return _first(spec, state.phase, rollout)
    if state.phase is Phase.ROLLING_BACK:
        return Aim(layout(spec, 0), layout(spec, 0))
    pods = rotation = layout(spec, rollout.desired_weight)
    if rollout.desired_weight == 0:
        pods = before_traffic(spec, next_weight(spec, rollout.step_index))
        rotation = Layout(0, 0, pods.stable, pods.stable_in_rotation)
    if _phase_below_pause(state) is Phase.PREFLIGHT:
        pods = Layout(pods.candidate, 0, pods.stable, pods.stable_in_rotation)
    return Aim(pods, rotation)


def _phase_below_pause(state: State) -> Phase:
    paused_from = state.rollout.paused_from if state.rollout is not None else None
    return paused_from if state.phase is Phase.PAUSED and paused_from is not None else state.phase


def _first(spec: Spec, phase: Phase, rollout: Rollout) -> Aim:
    """A first deployment: all pods at once, in rotation once all of them can serve."""
    nothing = Layout(0, 0, 0, 0)
    if phase is Phase.ROLLING_BACK:
        return Aim(nothing, nothing)
    pods = Layout(spec.replicas, 0, 0, 0)
    return Aim(pods, pods if rollout.desired_weight else nothing)
