"""Which pods are to take traffic now. It does not label them; `plan.py` does.

A pod leaves rotation behind traffic that was seen to arrive at others. What is missing to `replicas`
serving pods (less what maxUnavailable gives up where there is no surge) is filled by stable, then by
baseline and candidate pods that serve already. Two exceptions: a candidate that failed hard leaves at
once, unless nothing else can serve; and no pod enters rotation to fill a gap unless its arm may.
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
    baseline_in = baselines[: wanted.baseline]
    needed = spec.replicas - unavailable(spec)
    missing = needed - _arrived(observed, candidate_in, baseline_in)
    stable_in = stables[: max(0, wanted.stable_in_rotation, min(serving, missing))]
    missing -= _arrived(observed, stable_in)
    baseline_in = _fill(baselines, baseline_in, missing)
    missing = needed - _arrived(observed, stable_in, baseline_in, candidate_in)
    if not _is_hard(observed) or serving == 0:
        candidate_in = _fill(candidates, candidate_in, missing)
    return _rotation(stable_in, candidate_in, baseline_in)


def _arrived(observed: Observed, *groups: list[Pod]) -> int:
    """How many of these pods get traffic already: only they can stand in for one that leaves."""
    return sum(p.ready and p.name in observed.routed for pods in groups for p in pods)


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
