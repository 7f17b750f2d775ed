"""Which pods are to take traffic now. It does not label them; `plan.py` does.

A pod that leaves rotation is replaced first: what is missing to `replicas` serving pods (less what
maxUnavailable gives up where there is no surge) is filled by stable, then by baseline and candidate pods that serve already. Two exceptions: a candidate that
failed hard leaves at once, unless nothing else can serve; and no pod enters rotation to fill a gap unless
its arm may.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from rampway_operator.core.capacity import unavailable
from rampway_operator.core.observed import Observed, Pod
from rampway_operator.core.spec import Spec
from rampway_operator.core.view import Arms, aim, arms, is_available

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
    candidate_in = min(len(candidates), wanted.candidate)
    baseline_in = min(len(baselines), wanted.baseline)
    needed = spec.replicas - unavailable(spec)
    stable_in = max(
        min(len(stables), wanted.stable_in_rotation),
        min(serving, needed - candidate_in - baseline_in),
    )
    missing = needed - candidate_in - baseline_in - min(stable_in, serving)
    baseline_in = _fill(baselines, baseline_in, missing)
    missing -= max(0, baseline_in - min(len(baselines), wanted.baseline))
    if not _is_hard(observed) or serving == 0:
        candidate_in = _fill(candidates, candidate_in, missing)
    return _rotation(parts, stables[:stable_in], candidates[:candidate_in], baselines[:baseline_in])


def _fill(pods: list[Pod], chosen: int, missing: int) -> int:
    """How many of `pods` rotate when `missing` may be filled by those that do already."""
    already = sum(p.in_rotation for p in pods)
    return max(chosen, min(already, chosen + max(0, missing)))


def _is_hard(observed: Observed) -> bool:
    rollout = observed.state.rollout
    return rollout is not None and rollout.hard


def _ranked(pods: Iterable[Pod]) -> list[Pod]:
    """Those that serve first, then by age: the same order in every tick."""
    return sorted(pods, key=lambda p: (not p.ready, not p.in_rotation, p.created_at, p.name))


def _rotation(
    parts: Arms, stable: list[Pod], candidate: list[Pod], baseline: list[Pod]
) -> Rotation:
    ready = {p.name for p in (*stable, *candidate, *baseline) if p.ready}
    return Rotation(
        stable=frozenset(p.name for p in stable),
        candidate=frozenset(p.name for p in candidate),
        baseline=frozenset(p.name for p in baseline),
        ready=frozenset(
            ready & {p.name for p in (*parts.stable, *parts.candidate, *parts.baseline)}
        ),
    )
