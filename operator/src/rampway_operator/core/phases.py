"""The state machine of a rollout as one table: which phase may follow which, and why.

It does not know when a move is taken; `decide.py` does, and its tests hold it to this table.
"""

from __future__ import annotations

from typing import Final

from rampway_operator.core.state import Phase

__all__ = ["MOVES", "PROGRESSING", "as_mermaid", "is_legal"]

MOVES: Final[dict[Phase, dict[Phase, str]]] = {
    Phase.IDLE: {
        Phase.PREFLIGHT: "the spec has another revision hash, or a failed one is retried",
        Phase.PAUSED: "status was lost and rebuilt from the children in the middle of a rollout",
    },
    Phase.PREFLIGHT: {
        Phase.PROVISIONING: "check_env passed on every planned pod",
        Phase.PAUSED: "spec.paused",
        Phase.ROLLING_BACK: "BadRevision, too many bad nodes, infrastructure, deadline, abort, new spec",
    },
    Phase.PROVISIONING: {
        Phase.WARMING: "planned pods serve and some have not been warmed",
        Phase.SHIFTING: "planned pods serve: traffic may move",
        Phase.ANALYZING: "planned pods serve and the current step is an analysis",
        Phase.PAUSED: "spec.paused, a pause step, or a baseline that never came",
        Phase.BAKING: "the planned pods at 100 % are back",
        Phase.ROLLING_BACK: "crash loop, smoke failure, deadline, abort, new spec",
    },
    Phase.WARMING: {
        Phase.PROVISIONING: "the next step needs more pods, or a pod was lost",
        Phase.SHIFTING: "caches are steady, or the budget is spent and onTimeout is Proceed",
        Phase.ANALYZING: "the same, and the next step is an analysis",
        Phase.PAUSED: "spec.paused, a pause step, or the budget is spent and onTimeout is Pause",
        Phase.ROLLING_BACK: "the budget is spent and onTimeout is Abort, crash loop, abort, new spec",
    },
    Phase.SHIFTING: {
        Phase.PROVISIONING: "planned pods are missing, or the next step needs more",
        Phase.WARMING: "weight verified and the next step is a warm-up",
        Phase.ANALYZING: "weight verified and the next step is an analysis",
        Phase.PAUSED: "spec.paused, a pause step, or not verified within traffic.verify.maxDelay",
        Phase.BAKING: "100 % verified",
        Phase.DRAINING: "100 % verified and there was no stable revision to bake against",
        Phase.ROLLING_BACK: "crash loop, abort, new spec",
    },
    Phase.ANALYZING: {
        Phase.PROVISIONING: "passed and the next weight needs pods, or every candidate endpoint vanished",
        Phase.WARMING: "passed and the next step is a warm-up",
        Phase.SHIFTING: "passed and the pods of the next weight are there",
        Phase.PAUSED: "spec.paused, a pause step, undecided, an objective failed with onFailure Pause, or outage",
        Phase.ROLLING_BACK: "an objective failed, undecided with onUndecided Abort, crash loop, abort, new spec",
    },
    Phase.PAUSED: {
        Phase.PREFLIGHT: "resumed",
        Phase.PROVISIONING: "resumed, or the next weight needs pods",
        Phase.WARMING: "resumed, or the next step is a warm-up",
        Phase.SHIFTING: "resumed, or the pods of the next weight are there",
        Phase.ANALYZING: "resumed, or the next step is an analysis",
        Phase.BAKING: "resumed",
        Phase.DRAINING: "a person promoted what the bake could not decide",
        Phase.ROLLING_BACK: "abort, an objective failed, crash loop, new spec",
    },
    Phase.BAKING: {
        Phase.PROVISIONING: "every candidate endpoint vanished",
        Phase.PAUSED: "spec.paused, or nothing approved the promotion by the end of the bake",
        Phase.DRAINING: "promoted: the stable pointer moved in this very write",
        Phase.ROLLING_BACK: "an absolute objective failed, crash loop, abort, new spec",
    },
    Phase.DRAINING: {
        Phase.IDLE: "the old revision is scaled to 0, or a newer spec does not wait for it",
    },
    Phase.ROLLING_BACK: {
        Phase.IDLE: "candidate weight 0 verified, candidate and baseline at 0, stable at need",
    },
}

PROGRESSING: Final = frozenset({Phase.PREFLIGHT, Phase.PROVISIONING, Phase.WARMING})
"""Phases whose time spec.progressDeadline bounds by a rollback; Draining ends by force instead."""


def is_legal(current: Phase, following: Phase) -> bool:
    """Whether `following` may come after `current`; staying is always legal."""
    return current is following or following in MOVES[current]


def as_mermaid() -> str:
    """The table as a Mermaid state diagram: what docs/rollouts.md shows."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.IDLE.value}"]
    lines += [
        f"    {current.value} --> {following.value}: {why.replace(';', ',').replace(':', ',')}"
        for current, after in MOVES.items()
        for following, why in after.items()
    ]
    return "\n".join(lines)
