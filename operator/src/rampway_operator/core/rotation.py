"""Which pods are to take traffic now. It does not label them; `plan.py` does.

A pod leaves rotation behind traffic that was seen to arrive at others. What is missing to `replicas`
serving pods (less what maxUnavailable gives up where there is no surge) is filled by stable, then by
baseline and candidate pods that serve already. Two exceptions: a candidate that failed hard leaves at
once, unless nothing else gets traffic; and no pod enters rotation to fill a gap unless its arm may.
A blue-green switch is one step: all candidate pods enter together, and then all stable pods leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rampway_operator.core.capacity import unavailable
from rampway_operator.core.observed import Observed, Pod
from rampway_operator.core.spec import Spec
from rampway_operator.core.view import aim, arms, is_available

__all__ = ["Rotation", "choose"]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Names of the pods wanted in rotation, by arm; `ready` are those of them that can answer now."""

    stable: frozenset[str]
    candidate: frozenset[str]
    baseline: frozenset[str]
    ready: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return self.stable | self.candidate | self.baseline


def choose(spec: Spec, observed: Observed, now: datetime) -> Rotation:
    """The pods that the stored state wants in rotation, given which of them can serve now."""
    parts, wanted = arms(observed), aim(spec, observed.state).rotation
    candidates = [p for p in _ranked(parts.candidate) if is_available(p, spec, observed, now)]
    baselines = [p for p in _ranked(parts.baseline) if is_available(p, spec, observed, now)]
    stables = _ranked(parts.stable)
    serving = sum(p.ready for p in stables)
    candidate_in = candidates[: wanted.candidate]
    switching = False
    if spec.blue_green is not None and parts.stable:
        candidate_in = _all_or_none(candidates, wanted.candidate)
        switching = _arrived(observed, candidate_in) < wanted.candidate
    baseline_in = baselines[: wanted.baseline]
    needed = spec.replicas - unavailable(spec)
    beside = [p for p in (*candidate_in, *baseline_in) if _is_reached(spec, observed, p)]
    missing = needed - _arrived(observed, beside)
    keep = serving if switching and not _has_switched(observed) else min(serving, missing)
    stable_in = stables[: max(0, wanted.stable_in_rotation, keep)]
    missing -= _at_hand(spec, observed, stable_in)
    baseline_in = _fill(baselines, baseline_in, missing)
    missing = needed - _at_hand(spec, observed, stable_in, baseline_in)
    missing -= _arrived(observed, candidate_in)
    # Failing requests are better than none that can be answered at all.
    if not _is_hard(observed) or not _at_hand(spec, observed, stable_in, baseline_in):
        candidate_in = _fill(candidates, candidate_in, missing)
    return _rotation(stable_in, candidate_in, baseline_in)


def _all_or_none(candidates: list[Pod], wanted: int) -> list[Pod]:
    """A switch begins with all pods; once begun, those that serve take part whatever becomes of the rest."""
    begun = any(p.in_rotation for p in candidates)
    return candidates[:wanted] if begun or len(candidates) >= wanted else []


def _has_switched(observed: Observed) -> bool:
    rollout = observed.state.rollout
    return rollout is not None and rollout.verified_weight > 0


def _is_reached(spec: Spec, observed: Observed, pod: Pod) -> bool:
    """Whether requests have come to a pod: behind a gateway, weight in the route alone relieves no stable pod."""
    return spec.traffic.gateway is None or pod.uid in observed.served.reached


def _arrived(observed: Observed, *groups: list[Pod]) -> int:
    """How many of these pods get traffic already: only they can stand in for one that leaves."""
    return sum(p.ready and p.name in observed.routed for pods in groups for p in pods)


def _at_hand(spec: Spec, observed: Observed, *groups: list[Pod]) -> int:
    """How many pods of stable's revision can take what the candidate gives up.

    Behind a gateway that is a ready endpoint: nothing arrives at it before the route gives it weight.
    """
    if spec.traffic.gateway is None:
        return _arrived(observed, *groups)
    there = frozenset[str]().union(*observed.endpoints.values())
    return sum(p.ready and p.name in there for pods in groups for p in pods)


def _fill(pods: list[Pod], chosen: list[Pod], missing: int) -> list[Pod]:
    """`chosen`, and up to `missing` more of `pods` that rotate already."""
    spare = [p for p in pods[len(chosen) :] if p.in_rotation]
    return [*chosen, *spare[: max(0, missing)]]


def _is_hard(observed: Observed) -> bool:
    rollout = observed.state.rollout
    return rollout is not None and rollout.hard


def _ranked(pods: Iterable[Pod]) -> list[Pod]:
    """Those that serve first, then by age: the same order in every tick."""
    return sorted(pods, key=lambda p: (not p.ready, not p.in_rotation, p.created_at, p.name))


def _rotation(stable: list[Pod], candidate: list[Pod], baseline: list[Pod]) -> Rotation:
    return Rotation(
        stable=frozenset(p.name for p in stable),
        candidate=frozenset(p.name for p in candidate),
        baseline=frozenset(p.name for p in baseline),
        ready=frozenset(p.name for p in (*stable, *candidate, *baseline) if p.ready),
    )
