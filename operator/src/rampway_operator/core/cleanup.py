"""What is left over and may go: stale tries, old revisions beyond the history limit, unused names.

It does not know how pods leave; only what has none is deleted, apart from a stale try.
"""

from __future__ import annotations

from collections.abc import Iterator

from rampway_operator.core import objects
from rampway_operator.core.actions import Action, DeleteObject
from rampway_operator.core.observed import Observed, Pool, ReplicaSet
from rampway_operator.core.tick import Tick
from rampway_operator.core.view import candidate_hash, find_set

__all__ = ["clean_up", "is_stale"]


def is_stale(tick: Tick, item: ReplicaSet) -> bool:
    """Whether a candidate's ReplicaSet is left from an earlier try: this try has its own template."""
    number = tick.rollout.candidate.number
    return item.number != number and (item.number > 0 or item.replicas == 0)


def clean_up(tick: Tick) -> Iterator[Action]:
    """Stale ReplicaSets, old revisions beyond the history limit, and what was made only for them."""
    observed, state = tick.observed, tick.state
    trial = find_set(observed, candidate_hash(state) or "", Pool.MAIN)
    gone = [trial] if trial is not None and is_stale(tick, trial) else []
    stable_hash = state.stable.hash if state.stable is not None else ""
    main = {stable_hash, candidate_hash(state)}
    empty = [s for s in observed.replica_sets if s.replicas == 0 and not _has_pods(observed, s)]
    gone += [s for s in empty if s.pool is Pool.BASELINE and not _wants_baseline(tick, s)]
    old = [s for s in empty if s.pool is Pool.MAIN and s.hash not in main]
    old.sort(key=lambda s: s.number, reverse=True)
    gone += old[tick.spec.revision_history_limit :]
    for item in gone:
        yield DeleteObject("ReplicaSet", item.name, item.uid)
    left = {s.name for s in observed.replica_sets if s not in gone}
    left |= {objects.child_name(observed.name, h) for h in main if h}
    if tick.spec.blue_green is not None:
        left.add(objects.preview_name(observed.name))
    yield from _orphans(observed, left, {s.name for s in gone})


def _orphans(observed: Observed, left: set[str], gone: set[str]) -> Iterator[Action]:
    """Services and ConfigMaps of revisions that are gone, and the check_env of a stale try.

    Reports live as long as their revision's ReplicaSet: several tries add to one.
    """
    for key, uid in sorted(observed.uids.items()):
        kind, _, name = key.partition("/")
        if kind == "ConfigMap":
            # check_env has the name of its revision; reports and copies of ConfigMaps begin with it.
            revision = name[: len(observed.name) + 11]
            report = name == revision + objects.REPORT_SUFFIX
            unused = revision not in left or (revision in gone and not report)
        else:
            unused = name != observed.name and name not in left
        if unused:
            yield DeleteObject(kind, name, uid)


def _has_pods(observed: Observed, item: ReplicaSet) -> bool:
    return any(
        p.hash == item.hash and p.pool is item.pool and not p.deleting for p in observed.pods
    )


def _wants_baseline(tick: Tick, item: ReplicaSet) -> bool:
    stable = tick.state.stable
    return stable is not None and item.hash == stable.hash and tick.aim.pods.baseline > 0
