"""Two readings of the same pods become one paired window, or a reason why they cannot.

It does not know how pods were read, nor which objectives will look at the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from rampway_operator.core.observed import Arm, ArmWindow, Histogram, Window
from rampway_operator.core.scrape import CumulativeHistogram, PodCounters

__all__ = ["MAX_GAP", "NOTHING", "Dropped", "gained", "pair"]

MAX_GAP = 2
"""A window longer than this many intervals mixes too much and is dropped."""


NOTHING = ArmWindow(0, 0.0, None, None, None, None, None, None)
"""The side of an arm without pods."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Why two readings give no window: one sentence."""

    reason: str


def pair(
    previous: Mapping[str, PodCounters],
    current: Mapping[str, PodCounters],
    arms: Mapping[str, Arm],
    interval: timedelta,
    *,
    previous_arms: Mapping[str, Arm] | None = None,
    alone: bool = False,
) -> Window | Dropped:
    """The window between two readings of the pods in `arms`, summed by arm, or why it was dropped.

    Maps are by pod UID; `arms` has exactly the pods that take traffic now, `previous_arms` those that did
    at the previous reading (None: the same). Dropped when a pod came, went, restarted or changed its arm,
    when a counter fell or changed its name or buckets, when a pod was not read, or when the span is not
    between half an interval and two. Sums are over pods, never means: a pod without traffic does not
    dilute one with. With `alone` the candidate may be missing: its side then is `NOTHING`.
    """
    if previous_arms is not None and dict(previous_arms) != dict(arms):
        return Dropped("the pods that take traffic, or their arms, changed")
    unread = sorted(uid for uid in arms if uid not in previous or uid not in current)
    if unread:
        return Dropped(f"{len(unread)} of {len(arms)} pods were not read at both ends")
    if Arm.CANDIDATE not in arms.values() and not (alone and arms):
        return Dropped("no candidate pod takes traffic")
    pods = [(previous[uid], current[uid]) for uid in sorted(arms)]
    for before, after in pods:
        fault = _fault(before, after, interval)
        if fault:
            return Dropped(f"pod {after.uid}: {fault}")
    sides = {
        arm: _arm(before_after)
        for arm in Arm
        if (before_after := _of(arm, arms, previous, current))
    }
    return Window(
        started_at=min(before.at for before, _ in pods),
        ended_at=max(after.at for _, after in pods),
        candidate=sides.get(Arm.CANDIDATE, NOTHING),
        baseline=sides.get(Arm.BASELINE),
        stable=sides.get(Arm.STABLE),
    )


def gained(before: PodCounters, after: PodCounters, interval: timedelta) -> ArmWindow | Dropped:
    """What one pod did between two readings, or why they cannot be subtracted."""
    fault = _fault(before, after, interval)
    return Dropped(f"pod {after.uid}: {fault}") if fault else _arm([(before, after)])


_Pair = tuple[PodCounters, PodCounters]


def _of(
    arm: Arm,
    arms: Mapping[str, Arm],
    previous: Mapping[str, PodCounters],
    current: Mapping[str, PodCounters],
) -> list[_Pair]:
    return [(previous[uid], current[uid]) for uid in sorted(arms) if arms[uid] is arm]


def _fault(before: PodCounters, after: PodCounters, interval: timedelta) -> str:
    """Why the two readings of one pod cannot be subtracted; empty when they can."""
    span = after.at - before.at
    if span > MAX_GAP * interval:
        return f"gap of {span.total_seconds():g} s, need at most {MAX_GAP} intervals of {interval.total_seconds():g} s"
    if span < interval / 2:
        return f"read again after {span.total_seconds():g} s, need at least half an interval"
    if before.started_at != after.started_at:
        return "its process restarted"
    if before.sources != after.sources or before.missing != after.missing:
        return "its metrics changed their names"
    return _reset(before, after)


def _reset(before: PodCounters, after: PodCounters) -> str:
    """Which counters of one pod cannot be subtracted; empty when all can."""
    scalars = (
        (before.requests, after.requests),
        (before.errors, after.errors),
        (before.prompt_tokens, after.prompt_tokens),
        (before.cached_tokens, after.cached_tokens),
    )
    if any(_fell(a, b) for a, b in scalars):
        return "a counter fell: it was reset"
    for a, b in _histograms(before, after):
        if a.edges != b.edges:
            return "its histogram buckets changed"
        if any(y < x for x, y in zip(_counts(a), _counts(b), strict=True)):
            return "a histogram count fell: it was reset"
    return ""


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _histograms(
    before: PodCounters, after: PodCounters
) -> list[tuple[CumulativeHistogram, CumulativeHistogram]]:
    both = (
        (before.ttft, after.ttft),
        (before.inter_token, after.inter_token),
        (before.e2e, after.e2e),
    )
    return [(a, b) for a, b in both if a is not None and b is not None]


def _counts(histogram: CumulativeHistogram) -> tuple[float, ...]:
    """Counts of the single buckets."""
    counts = histogram.counts
    return tuple(c - (counts[i - 1] if i else 0.0) for i, c in enumerate(counts))


def _arm(pods: list[_Pair]) -> ArmWindow:
    return ArmWindow(
        pods=len(pods),
        requests=_total([(a.requests, b.requests) for a, b in pods]) or 0.0,
        errors=_total([(a.errors, b.errors) for a, b in pods]),
        prompt_tokens=_total([(a.prompt_tokens, b.prompt_tokens) for a, b in pods]),
        cached_tokens=_total([(a.cached_tokens, b.cached_tokens) for a, b in pods]),
        ttft=_merged([(a.ttft, b.ttft) for a, b in pods]),
        inter_token=_merged([(a.inter_token, b.inter_token) for a, b in pods]),
        e2e=_merged([(a.e2e, b.e2e) for a, b in pods]),
    )


def _total(ends: list[tuple[float | None, float | None]]) -> float | None:
    """The sum of the increases; None as soon as one pod does not have the counter."""
    total = 0.0
    for before, after in ends:
        if before is None or after is None:
            return None
        total += after - before
    return total


def _merged(
    ends: list[tuple[CumulativeHistogram | None, CumulativeHistogram | None]],
) -> Histogram | None:
    """The summed increases; None where a pod has no such histogram or other buckets than the rest."""
    edges: tuple[float, ...] | None = None
    counts: list[float] = []
    for before, after in ends:
        if before is None or after is None or edges not in (None, after.edges):
            return None
        gained = [b - a for a, b in zip(_counts(before), _counts(after), strict=True)]
        counts = gained if edges is None else [x + y for x, y in zip(counts, gained, strict=True)]
        edges = after.edges
    return None if edges is None else Histogram(edges, tuple(counts))
