"""The phases that end a rollout: Draining after a promotion, RollingBack after anything else.

It does not know how pods leave (`plan.py`).
"""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.config_refs import missing_configs
from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Pool
from rampway_operator.core.revision import plan_digest
from rampway_operator.core.state import EndReason, FailedRevision, HistoryEntry, Phase
from rampway_operator.core.status_read import MAX_FAILED
from rampway_operator.core.tick import SOON, Tick
from rampway_operator.core.view import find_set

__all__ = ["on_draining", "on_rolling_back"]

NO_FAULT = frozenset({EndReason.PROMOTED, EndReason.REVERTED, EndReason.SUPERSEDED})
"""Ends that say nothing against a revision: it may be tried again."""


def on_draining(tick: Tick) -> Move:
    """Promoted: the old revision's pods leave after scaleDownDelay; a newer spec does not wait for them."""
    stable = tick.state.stable
    known = not missing_configs(tick.spec, tick.observed)
    if known and stable is not None and tick.observed.spec_hash != stable.hash:
        return _finish(tick, "a newer spec came while the old revision drained")
    left = [p for p in tick.arms.retired if not p.deleting]
    sets = [
        s for s in tick.observed.replica_sets if s.replicas and not _is_stable(tick, s.hash, s.pool)
    ]
    if not left and not sets:
        return _finish(tick, tick.rollout.end_message)
    limit = tick.spec.canary.scale_down_delay + tick.spec.traffic.drain_timeout
    if tick.in_phase > limit:
        return _finish(tick, f"{tick.rollout.end_message}; {len(left)} old pods left by force")
    wait = tick.spec.canary.scale_down_delay - tick.in_phase
    if wait.total_seconds() > 0:
        return tick.stay(
            f"the old revision to be kept for another {format_duration(wait)}", after=SOON
        )
    return tick.stay(f"{len(left)} pods of the old revision to leave", after=SOON)


def _is_stable(tick: Tick, revision: str, pool: Pool) -> bool:
    stable = tick.state.stable
    return stable is not None and stable.hash == revision and pool is Pool.MAIN


def on_rolling_back(tick: Tick) -> Move:
    """Ends when the candidate has no endpoint and no pod, the baseline is gone and stable is at need."""
    candidate = find_set(tick.observed, tick.rollout.candidate.hash, Pool.MAIN)
    routed = {p.name for p in tick.arms.candidate} & tick.observed.routed
    stable_missing = _stable_missing(tick)
    going = len(tick.arms.candidate) + len(tick.arms.baseline)
    scaled = (candidate is None or candidate.replicas == 0) and _no_baseline(tick)
    if not routed and not going and scaled and not stable_missing:
        return _finish(tick, tick.rollout.end_message)
    told = f"{len(routed)} candidate endpoints and {going} pods to go; {stable_missing or 'stable is at need'}"
    if tick.in_phase <= tick.spec.progress_deadline:
        return tick.stay(told, after=SOON, verified_weight=tick.routed_weight())
    if not tick.rollout.hard:
        forced = replace(tick.rollout, hard=True, phase_started_at=tick.now)
        state = replace(tick.state, rollout=forced)
        return tick.moved(state, "RollbackForced", f"the deadline is over: {told}")
    if _nothing_else_serves(tick):
        return tick.stay(f"a stable pod to be ready, nothing else could serve: {told}")
    return _finish(tick, f"{tick.rollout.end_message}; ended by the deadline with {told}")


def _no_baseline(tick: Tick) -> bool:
    stable = tick.state.stable
    found = find_set(tick.observed, stable.hash, Pool.BASELINE) if stable is not None else None
    return found is None or found.replicas == 0


def _stable_missing(tick: Tick) -> str:
    """What stable lacks, as a clause; empty when its ReplicaSet is at the wanted size, or there is none.

    Readiness is not asked for here: `rotation.py` keeps a serving candidate until stable can take over.
    """
    stable = tick.state.stable
    found = find_set(tick.observed, stable.hash, Pool.MAIN) if stable is not None else None
    if found is None or found.replicas == tick.spec.replicas:
        return ""
    return f"stable to be scaled from {found.replicas} to {tick.spec.replicas}"


def _nothing_else_serves(tick: Tick) -> bool:
    """Whether ending would take the last serving pods; a newer spec may be their repair and goes first."""
    if tick.state.stable is None or tick.rollout.successor_pending:
        return False
    if tick.observed.spec_hash != tick.rollout.candidate.hash:
        return False
    return any(p.ready for p in tick.arms.candidate) and not any(p.ready for p in tick.arms.stable)


def _finish(tick: Tick, message: str) -> Move:
    """Idle again, with the outcome in history; a revision at fault is remembered."""
    state, rollout = tick.state, tick.rollout
    outcome = rollout.end_reason or EndReason.ABORTED
    entry = HistoryEntry(
        number=rollout.candidate.number,
        hash=rollout.candidate.hash,
        image=rollout.candidate.image,
        outcome=outcome,
        message=message,
        started_at=rollout.started_at,
        ended_at=tick.now,
    )
    failed = state.failed
    if outcome not in NO_FAULT:
        others = tuple(item for item in failed if item.hash != rollout.candidate.hash)
        record = FailedRevision(
            rollout.candidate.hash, outcome, tick.observed.generation, plan_digest(tick.spec)
        )
        failed = (*others, record)[-MAX_FAILED:]
    # The last one is kept whatever the limit: conditions speak of it.
    limit = max(1, tick.spec.revision_history_limit)
    ended = replace(
        state,
        phase=Phase.IDLE,
        rollout=None,
        failed=failed,
        history=(*state.history, entry)[-limit:],
    )
    return tick.moved(ended, "RolloutEnded", f"{outcome.value}: {message}")
