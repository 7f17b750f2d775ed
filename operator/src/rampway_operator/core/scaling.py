"""How many pods each ReplicaSet is asked for now, on the way to what the stored state wants.

It does not know why the state wants it. Two rules order the way: nothing is started beyond
`replicas + surge`, and no pod is taken away while it is in rotation or still gets traffic. Stable only
shrinks behind traffic that was seen to arrive elsewhere, since `rotation.py` holds its pods until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rampway_operator.core.capacity import surge
from rampway_operator.core.observed import Observed, Pod, Pool, ReplicaSet
from rampway_operator.core.rotation import Rotation
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase
from rampway_operator.core.view import aim, arms, candidate_hash, find_set

__all__ = ["Sizes", "sizes"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Replicas by part; `retired` by ReplicaSet name."""

    stable: int
    candidate: int
    baseline: int
    retired: dict[str, int]


@dataclass(slots=True)
class _Room:
    """Counts down what may still be started. Pods that are being deleted do not count, as in Deployments."""

    left: int

    def grant(self, current: int, wanted: int) -> int:
        """`wanted`, or as much above `current` as there is room for."""
        if wanted <= current:
            return wanted
        granted = min(wanted, current + max(0, self.left))
        self.left -= granted - current
        return granted


def sizes(spec: Spec, observed: Observed, rotation: Rotation, now: datetime) -> Sizes:
    """The replicas to ask for in this tick."""
    state, parts, wanted = observed.state, arms(observed), aim(spec, observed.state)
    stable_hash = state.stable.hash if state.stable is not None else ""
    stable_set = find_set(observed, stable_hash, Pool.MAIN)
    baseline_set = find_set(observed, stable_hash, Pool.BASELINE)
    candidate_set = find_set(observed, candidate_hash(state) or "", Pool.MAIN)
    retired = _retired(
        spec, observed, parts.retired, (stable_set, baseline_set, candidate_set), now
    )
    current = {
        "stable": _size(stable_set, parts.stable),
        "candidate": _size(candidate_set, parts.candidate),
        "baseline": _size(baseline_set, parts.baseline),
    }
    others = sum(max(s.replicas, len(_of(s, parts.retired))) for s in _sets(observed, retired))
    room = _Room(spec.replicas + surge(spec) - others - sum(current.values()))
    stable = _stable(spec, observed, current["stable"]) if state.stable else 0
    stable = room.grant(current["stable"], max(stable, _held(parts.stable, observed, rotation)))
    candidate = max(wanted.pods.candidate, _held(parts.candidate, observed, rotation))
    candidate = room.grant(current["candidate"], candidate)
    baseline = max(wanted.pods.baseline, _held(parts.baseline, observed, rotation))
    baseline = room.grant(current["baseline"], baseline)
    return Sizes(stable, candidate, baseline, retired)


def _stable(spec: Spec, observed: Observed, current: int) -> int:
    """Stable between what must rotate and what the surge has room for; it does not grow for standby."""
    pods = aim(spec, observed.state).pods
    least = max(pods.stable_in_rotation, min(1, spec.replicas))
    return min(max(current, least), max(pods.stable, least))


def _held(pods: Iterable[Pod], observed: Observed, rotation: Rotation) -> int:
    """Pods that may not be taken yet: their label or their endpoint has to go first."""
    return sum(p.in_rotation or p.name in observed.routed or p.name in rotation.names for p in pods)


def _size(item: ReplicaSet | None, pods: tuple[Pod, ...]) -> int:
    return max(item.replicas, len(pods)) if item is not None else 0


def _of(item: ReplicaSet, pods: tuple[Pod, ...]) -> list[Pod]:
    return [p for p in pods if p.hash == item.hash and p.pool is item.pool]


def _sets(observed: Observed, chosen: dict[str, int]) -> list[ReplicaSet]:
    return [s for s in observed.replica_sets if s.name in chosen]


def _retired(
    spec: Spec,
    observed: Observed,
    pods: tuple[Pod, ...],
    kept: tuple[ReplicaSet | None, ...],
    now: datetime,
) -> dict[str, int]:
    """Old revisions go to 0: after scaleDownDelay when they drain, else as soon as no traffic reaches them."""
    state, rollout = observed.state, observed.state.rollout
    waits = (
        state.phase is Phase.DRAINING
        and rollout is not None
        and now - rollout.phase_started_at < spec.canary.scale_down_delay
    )
    result = {}
    for item in observed.replica_sets:
        if item in kept:
            continue
        held = sum(p.in_rotation or p.name in observed.routed for p in _of(item, pods))
        result[item.name] = item.replicas if waits else min(item.replicas, held)
    return result
