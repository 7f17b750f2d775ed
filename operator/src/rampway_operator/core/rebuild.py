"""Rebuilds a lost status from the children alone. It does not know why status was lost.

What the children cannot prove is not assumed: a rollout that was under way comes back paused, with the
traffic it has, and a person decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime

from rampway_operator.core.capacity import expressed
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Observed, Pool, ReplicaSet
from rampway_operator.core.revision import run_digest, strategy_of
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase, Revision, Rollout
from rampway_operator.core.tick import look

__all__ = ["needs_rebuild", "rebuild"]


def needs_rebuild(observed: Observed) -> bool:
    """Whether a revision is made to serve though no stable one is remembered."""
    state = observed.state
    if state.stable is not None:
        return False
    trial = state.rollout.candidate.hash if state.rollout is not None else ""
    return any(s.template_in_rotation and s.hash != trial for s in _main(observed))


def rebuild(spec: Spec, observed: Observed, now: datetime) -> Move:
    """Stable is the revision with most pods in rotation; any other with pods is a paused candidate.

    What else is still remembered is kept. With nothing made to serve there is nothing to rebuild: the
    spec is then tried anew.
    """
    sets, serving = _main(observed), _serving(observed)
    last = max(observed.state.last_number, *(s.number for s in sets))
    ranked = sorted(
        sets,
        key=lambda s: (serving[s.hash], s.template_in_rotation, s.replicas, s.number),
        reverse=True,
    )
    first = ranked[0]
    stable = _revision(first)
    trial = _trial(ranked[1:], observed)
    state = replace(observed.state, phase=Phase.IDLE, stable=stable, rollout=None, last_number=last)
    told = f"status was lost: stable is {stable.hash}, the revision with most pods in rotation"
    if trial is None:
        return look(spec, observed, state, now).moved(state, "StateRebuilt", told)
    routed = sum(p.name in observed.routed for p in observed.pods if p.hash == trial.hash)
    weight = expressed(routed, len(observed.routed))
    rollout = Rollout(
        candidate=_revision(trial),
        attempt=1,
        started_at=now,
        phase_started_at=now,
        step_started_at=now,
        desired_weight=weight,
        verified_weight=weight,
        paused_from=Phase.PREFLIGHT,
        paused_reason="StateRebuilt",
        plan=run_digest(spec),
        strategy=strategy_of(spec),
    )
    paused = replace(state, phase=Phase.PAUSED, rollout=rollout)
    told += f"; candidate {trial.hash} waits for a promote or abort command"
    return look(spec, observed, paused, now).moved(paused, "StateRebuilt", told)


def _main(observed: Observed) -> list[ReplicaSet]:
    return [s for s in observed.replica_sets if s.pool is Pool.MAIN]


def _serving(observed: Observed) -> Counter[str]:
    """Ready pods in rotation, by revision."""
    return Counter(
        p.hash
        for p in observed.pods
        if p.in_rotation and p.ready and not p.deleting and p.pool is Pool.MAIN
    )


def _trial(others: list[ReplicaSet], observed: Observed) -> ReplicaSet | None:
    """The newest other revision that has pods, or that the spec asks for."""
    alive = [s for s in others if s.replicas > 0]
    return max(alive, key=lambda s: (s.hash == observed.spec_hash, s.number), default=None)


def _revision(item: ReplicaSet) -> Revision:
    return Revision(item.hash, item.number, item.image)
