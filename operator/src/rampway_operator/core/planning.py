"""Windows that do not vote: they choose bucket edges, or wait until caches are steady.

It does not know what voting windows lead to.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rampway_operator.core.buckets import fine_edge, survival
from rampway_operator.core.measures import histogram_of
from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.spec import Objective
from rampway_operator.core.state import Evidence, Sums

__all__ = [
    "PLANNING_EXCEEDANCES",
    "await_steady",
    "beyond",
    "buckets_end_too_low",
    "edges_are_dead",
    "plan_edges",
]

PLANNING_EXCEEDANCES = 4
"""Requests beyond the quantile that planning windows must have before edges are pinned."""

DEAD_EXCEEDANCES = 12
"""Requests due beyond the reference's edge, none of which came, after which the edge is given up."""

STEADY_WINDOWS = 2

STEADY_REQUESTS = 8
"""A block of a steadiness check: so many windows, and so many requests of each arm."""

STEADY_BLOCKS = 8
"""Blocks after which the arms count as equally cold: they are of one age and had the same load."""


def plan_edges(
    objective: Objective, evidence: Evidence, window: Window, ours: Histogram, theirs: Histogram
) -> Evidence:
    """Collect reference counts until enough lie beyond the quantile, then pin both edges.

    Stable's requests help where they can: the edge is a choice, not evidence, and these windows do not
    vote. Where the buckets end below the edges needed, half of what was collected is forgotten at each
    window, so that a moment of trouble does not keep edges from being found after it.
    """
    planning = evidence.planning
    if len(planning) != len(theirs.counts):
        planning = (0.0,) * len(theirs.counts)
    elif buckets_end_too_low(objective, evidence):
        planning = tuple(count / 2 for count in planning)
    sources = [theirs]
    stable = None if window.stable is None else histogram_of(objective.metric, window.stable)
    if stable is not None and stable is not theirs and stable.edges == theirs.edges:
        sources.append(stable)
    for histogram in sources:
        planning = tuple(a + b for a, b in zip(planning, histogram.counts, strict=True))
    collected = replace(evidence, planning=planning)
    share = beyond(objective)
    counts = Histogram(theirs.edges, planning)
    if counts.total * share < PLANNING_EXCEEDANCES:
        return collected
    low = max(
        (edge for edge in counts.edges[:-1] if survival(counts, edge) >= share * counts.total),
        default=counts.edges[0],
    )
    comparison = objective.comparison
    regression = float(comparison.max_regression or 0) if comparison is not None else 0.0
    high = fine_edge(ours, (1.0 + regression) * low)
    if high is None:
        return collected
    return replace(evidence, planning=(), voting=True, reference_edge=low, candidate_edge=high)


def beyond(objective: Objective) -> float:
    """The share of the reference's requests that are to lie beyond its edge."""
    return 1.0 - float(objective.tail or objective.quantile or 0)


def buckets_end_too_low(objective: Objective, evidence: Evidence) -> bool:
    """Whether enough requests were collected, and yet no bucket edge was fit to compare at.

    That is so when the margin times the reference's quantile lies beyond the engine's last bucket.
    """
    return sum(evidence.planning) * beyond(objective) >= PLANNING_EXCEEDANCES


def edges_are_dead(objective: Objective, sums: Sums) -> bool:
    """Whether no request of either arm comes near the edges, so that no number of them decides anything.

    Planning windows that fell into a moment of trouble pin edges that lie above everything that follows.
    A share 1 - q of the reference was to lie beyond its edge; that none of so many does has a chance of
    e^-12. The sums include windows that no look has judged.
    """
    due = sums.rr * beyond(objective)
    return sums.xc == 0.0 and sums.xr == 0.0 and due >= DEAD_EXCEEDANCES


def await_steady(
    evidence: Evidence, arms: tuple[ArmWindow, ArmWindow], max_delta: float
) -> Evidence:
    """Blocks of windows until neither arm's hit rate still rises by more than `max_delta`.

    `planning` holds: blocks, windows of this block, then (cached, prompt) of each arm in the last block
    and (cached, prompt, requests) of each in this one.
    """
    old = evidence.planning if len(evidence.planning) == 12 else (0.0,) * 12
    blocks, windows, last = old[0], old[1] + 1.0, old[2:6]
    gained = [
        amount
        for arm in arms
        for amount in (arm.cached_tokens or 0.0, arm.prompt_tokens or 0.0, arm.requests)
    ]
    block = tuple(a + b for a, b in zip(old[6:], gained, strict=True))
    if windows < STEADY_WINDOWS or min(block[2], block[5]) < STEADY_REQUESTS:
        return replace(evidence, planning=(blocks, windows, *last, *block))
    steady = blocks > 0 and not any(
        _rises(last[2 * i : 2 * i + 2], block[3 * i : 3 * i + 3], max_delta) for i in range(2)
    )
    if steady or blocks + 1 >= STEADY_BLOCKS:
        return replace(evidence, voting=True, planning=())
    ended = (block[0], block[1], block[3], block[4])
    return replace(evidence, planning=(blocks + 1.0, 0.0, *ended, *(0.0,) * 6))


def _rises(last: tuple[float, ...], block: tuple[float, ...], max_delta: float) -> bool:
    """Whether the hit rate rose by more than `max_delta` and more than a block's chance (two errors)."""
    if last[1] <= 0.0 or block[1] <= 0.0:
        return False
    before, now = last[0] / last[1], block[0] / block[1]
    chance = 2.0 * math.sqrt(max(now * (1.0 - now), 0.0) / max(block[2], 1.0))
    return now - before > max(max_delta, chance)
