"""Windows become evidence: what one objective takes from a paired window, and how it adds up.

It judges nothing (`verdict.py` does) and does no statistics beyond sums.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, fields, replace

from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.spec import Against, Metric, Objective
from rampway_operator.core.state import Evidence, Sums

__all__ = [
    "GROUPS",
    "LATENCIES",
    "PLANNING_EXCEEDANCES",
    "Part",
    "add",
    "at_step",
    "definition",
    "fold",
    "grouped",
    "merged",
    "reference_of",
    "samples",
    "survival",
    "tail_score",
    "unusable",
]

LATENCIES = frozenset({Metric.TTFT, Metric.INTER_TOKEN_LATENCY, Metric.E2E_LATENCY})

PLANNING_EXCEEDANCES = 4
"""Requests beyond the quantile that planning windows must have before edges are pinned."""
FINE = 1.2
"""Widest bucket, as the ratio of its edges, within which a latency may be placed."""
GROUPS = (4, 16, 64)
"""Sizes of the groups of windows whose spread is watched."""
STEADY_WINDOWS = 2
STEADY_REQUESTS = 8
"""A block of a steadiness check: so many windows, and so many requests of each arm."""
STEADY_BLOCKS = 8
"""Blocks after which the arms count as equally cold: they are of one age and had the same load."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one arm gives to an objective in one window."""

    x: float
    n: float
    requests: float
    q: float
    """Sum of squared scores of single observations; x for shares."""


def samples(objective: Objective, sums: Sums) -> float:
    """Requests that speak for an objective: the candidate's, or the smaller arm's in a comparison."""
    return sums.rc if objective.comparison is None else min(sums.rc, sums.rr)


def definition(objective: Objective) -> str:
    """One line that changes when evidence so far no longer fits the objective."""
    parts = [objective.metric.value]
    if objective.quantile is not None:
        parts.append(f"quantile {objective.quantile}")
    if objective.tail is not None:
        parts.append(f"tail {objective.tail}")
    if objective.comparison is not None:
        comparison = objective.comparison
        margin = comparison.max_regression, comparison.max_drop
        parts.append(f"against {comparison.against.value} by {margin[0]} or {margin[1]}")
    if objective.slo_max is not None:
        parts.append(f"at most {objective.slo_max}")
    return ", ".join(parts)


def at_step(evidence: Evidence | None, objective: Objective, step: int) -> Evidence:
    """The evidence at the beginning of, or within, step `step`.

    Moving to another step starts the step's own sums and guard anew and asks again whether the arms are
    steady; everything else carries over, but for windows that no look has judged: look before moving.
    Evidence of another definition is dropped.
    """
    described = definition(objective)
    if evidence is None or evidence.definition != described:
        return Evidence(objective=objective.name, definition=described, step=step)
    if evidence.step == step:
        return evidence
    return replace(
        evidence,
        step=step,
        step_sums=Sums(),
        step_alpha_spent=0.0,
        step_level=0.0,
        step_looks=0,
        passed=False,
        pending=Sums(),
        voting=evidence.voting and not objective.steady_only,
        planning=(),
    )


def reference_of(objective: Objective, window: Window) -> ArmWindow | None:
    """The arm that the candidate is compared with in this window; None if there is no fair one.

    The Baseline arm while it exists, else Stable. A hit rate depends on the number of pods among which
    sessions are spread, so there Stable is fair only with as many pods as the candidate has.
    """
    if objective.comparison is None:
        return None
    if objective.comparison.against is Against.BASELINE and window.baseline is not None:
        return window.baseline
    stable = window.stable
    if stable is not None and objective.metric is Metric.PREFIX_CACHE_HIT_RATE:
        return stable if stable.pods == window.candidate.pods else None
    return stable


def survival(histogram: Histogram, edge: float) -> float:
    """Observations above `edge` seconds; exact at the histogram's own edges.

    Within a bucket observations count as spread evenly over the logarithm.
    """
    i = bisect_left(histogram.edges, edge)
    if i >= len(histogram.edges):
        return 0.0
    return sum(histogram.counts[i + 1 :]) + histogram.counts[i] * _share_above(histogram, i, edge)


def _share_above(histogram: Histogram, i: int, edge: float) -> float:
    """The share of bucket `i` above `edge`, which lies within it or at its upper end."""
    high = histogram.edges[i]
    if high == edge:
        return 0.0
    low = histogram.edges[i - 1] if i else 0.0
    if low <= 0.0 or math.isinf(high) or edge <= low:
        return 1.0
    return math.log(high / edge) / math.log(high / low)


def tail_score(histogram: Histogram, edge: float) -> tuple[float, float]:
    """(sum, sum of squares) of max(0, log(latency / edge)) over the observations.

    A bucket counts with the logarithmic middle of what lies above `edge`, the last one with its lower
    edge: so an unbounded latency never has an unbounded weight.
    """
    total = squares = 0.0
    first = bisect_left(histogram.edges, edge)
    for i in range(first, len(histogram.edges)):
        count = histogram.counts[i]
        if count == 0.0 or histogram.edges[i] <= edge:
            continue
        if i == first:
            count *= _share_above(histogram, i, edge)
        low = max(edge, histogram.edges[i - 1] if i else edge)
        high = histogram.edges[i]
        score = math.log(low / edge)
        if not math.isinf(high):
            score += 0.5 * math.log(high / low)
        total += count * score
        squares += count * score * score
    return total, squares


def merged(a: Sums, b: Sums) -> Sums:
    """The sums of both sets of windows."""
    return Sums(*(getattr(a, f.name) + getattr(b, f.name) for f in fields(Sums)))


def add(sums: Sums, candidate: Part, reference: Part | None, same: float = 0.0) -> Sums:
    """`sums` with one more window. A window in which an arm served nothing says nothing and is left out.

    With a reference, u = (xc * nr - xr * nc) / (nc + nr): given the window's requests, its expectation is
    zero when it made no difference which arm served which request, whatever the load, the mix of requests
    and the split, even one that changed. The estimate is sum(u) / sum(v).
    """
    if candidate.n <= 0.0 or (reference is not None and reference.n <= 0.0):
        return sums
    if reference is None:
        reference, w, sc, sr, v = Part(0.0, 0.0, 0.0, 0.0), 0.0, candidate.x, 0.0, candidate.n
    else:
        w = 1.0 / (candidate.n + reference.n)
        sc, sr = candidate.x * reference.n * w, reference.x * candidate.n * w
        v = candidate.n * reference.n * w
    u = sc - sr
    return merged(
        sums,
        Sums(
            windows=1,
            xc=candidate.x,
            nc=candidate.n,
            xr=reference.x,
            nr=reference.n,
            rc=candidate.requests,
            rr=reference.requests,
            sc=sc,
            sr=sr,
            same=same * candidate.n * w,
            v=v,
            uu=u * u,
            uv=u * v,
            vv=v * v,
            q=candidate.q + reference.q,
        ),
    )


def grouped(groups: tuple[float, ...], windows: int, u: float, v: float) -> tuple[float, ...]:
    """`groups` after one more window of (u, v), when `windows` windows had been counted before.

    For each size in GROUPS: sums of u and v of the group that is not full yet, then sums of u * u, u * v
    and v * v over the full ones. Windows that resemble their neighbours, as they do when a queue or a
    session outlives a window, show in groups that spread more than their size explains.
    """
    values = list(groups) if len(groups) == 5 * len(GROUPS) else [0.0] * (5 * len(GROUPS))
    for i, size in enumerate(GROUPS):
        at = 5 * i
        values[at] += u
        values[at + 1] += v
        if (windows + 1) % size == 0:
            gu, gv = values[at], values[at + 1]
            values[at : at + 5] = [
                0.0,
                0.0,
                values[at + 2] + gu * gu,
                values[at + 3] + gu * gv,
                values[at + 4] + gv * gv,
            ]
    return tuple(values)


def fold(objective: Objective, evidence: Evidence, window: Window, *, max_delta: float) -> Evidence:
    """The evidence after one more window: planned with, or added to what the next look will judge.

    `max_delta` is how much a hit rate may still rise from block to block in a steady arm. A window that
    the objective cannot use changes nothing; `unusable` says why.
    """
    if unusable(objective, window):
        return evidence
    reference = reference_of(objective, window)
    if objective.steady_only and not evidence.voting:
        arms = window.candidate, window.candidate if reference is None else reference
        return _await_steady(evidence, arms, max_delta)
    if reference is None:
        return _fold_absolute(objective, evidence, window.candidate)
    if objective.metric in LATENCIES:
        return _fold_latency(objective, evidence, window, reference)
    candidate = _share(objective, window.candidate, candidate=True)
    other = _share(objective, reference, candidate=False)
    same = _share(objective, reference, candidate=True)
    return _voted(evidence, candidate, other, same.x)


def unusable(objective: Objective, window: Window) -> str:
    """Why the objective can take nothing from this window, as a clause; empty when it can."""
    reference = reference_of(objective, window)
    if objective.comparison is not None and reference is None:
        stable = 0 if window.stable is None else window.stable.pods
        return (
            f"there is no fair reference arm (candidate has {window.candidate.pods} pods, "
            f"stable {stable}, baseline none)"
        )
    for name, arm in (("candidate", window.candidate), ("reference", reference)):
        if arm is not None and _lacks(objective, arm):
            return f"the {name} exports no {_lacks(objective, arm)}"
    if objective.metric in LATENCIES and objective.comparison is None:
        histogram = _histogram(objective.metric, window.candidate)
        limit = float(objective.slo_max or 0)
        if histogram is not None and _edge_at_least(histogram, limit) is None:
            return f"the limit of {limit:g} s lies beyond the candidate's largest bucket"
    return ""


def _lacks(objective: Objective, arm: ArmWindow) -> str:
    tokens = arm.prompt_tokens is None or arm.cached_tokens is None
    if tokens and (objective.steady_only or objective.metric is Metric.PREFIX_CACHE_HIT_RATE):
        return "counters of prompt and cached tokens"
    if objective.metric is Metric.ERROR_RATE and arm.errors is None:
        return "counter of errors"
    if objective.metric in LATENCIES and _histogram(objective.metric, arm) is None:
        return f"{objective.metric.value} histogram"
    return ""


def _histogram(metric: Metric, arm: ArmWindow) -> Histogram | None:
    if metric is Metric.TTFT:
        return arm.ttft
    return arm.inter_token if metric is Metric.INTER_TOKEN_LATENCY else arm.e2e


def _share(objective: Objective, arm: ArmWindow, *, candidate: bool) -> Part:
    """Badness of one arm: missed tokens or errors.

    With a relative margin r the reference's errors are scaled by 1 + r and its hits by 1 - r, so that the
    difference to test is zero.
    """
    comparison = objective.comparison
    relative = 0.0
    if comparison is not None and comparison.max_regression is not None and not candidate:
        relative = float(comparison.max_regression)
    if objective.metric is Metric.PREFIX_CACHE_HIT_RATE:
        prompt = arm.prompt_tokens or 0.0
        missed = prompt - (1.0 - relative) * min(arm.cached_tokens or 0.0, prompt)
        return Part(missed, prompt, arm.requests, missed)
    errors = (1.0 + relative) * (arm.errors or 0.0)
    return Part(errors, arm.requests, arm.requests, errors)


def _voted(
    evidence: Evidence, candidate: Part, reference: Part | None, same: float = 0.0
) -> Evidence:
    one = add(Sums(), candidate, reference, same)
    if one.windows == 0:
        return replace(evidence, voting=True)
    windows = evidence.sums.windows + evidence.pending.windows
    return replace(
        evidence,
        voting=True,
        pending=merged(evidence.pending, one),
        groups=grouped(evidence.groups, windows, one.sc - one.sr, one.v),
    )


def _fold_absolute(objective: Objective, evidence: Evidence, arm: ArmWindow) -> Evidence:
    if objective.metric not in LATENCIES:
        part = _share(objective, arm, candidate=True)
        return _voted(evidence, part, None)
    histogram = _histogram(objective.metric, arm)
    assert histogram is not None, "unusable() has looked"
    edge = _edge_at_least(histogram, float(objective.slo_max or 0))
    assert edge is not None, "unusable() has looked"
    above = survival(histogram, edge)
    part = Part(above, histogram.total, _requests(objective, arm, histogram), above)
    return _voted(replace(evidence, candidate_edge=edge), part, None)


def _edge_at_least(histogram: Histogram, seconds: float) -> float | None:
    """The smallest finite edge >= `seconds` (but for rounding); None when buckets end before it."""
    for edge in histogram.edges:
        if edge >= seconds * (1.0 - 1e-9):
            return None if math.isinf(edge) else edge
    return None


def _fine_edge(histogram: Histogram, seconds: float) -> float | None:
    """`seconds` itself within a narrow bucket, else the next edge; None when buckets end before it.

    Within a wide bucket nobody knows where the observations lie, so there the margin is widened.
    """
    high = _edge_at_least(histogram, seconds)
    if high is None:
        return None
    i = histogram.edges.index(high)
    narrow = i > 0 and high <= FINE * histogram.edges[i - 1]
    return seconds if narrow else high


def _requests(objective: Objective, arm: ArmWindow, histogram: Histogram) -> float:
    """Requests behind a histogram; tokens of one request are not independent of each other."""
    if objective.metric is Metric.INTER_TOKEN_LATENCY and arm.requests > 0.0:
        return min(arm.requests, histogram.total)
    return histogram.total


def _fold_latency(
    objective: Objective, evidence: Evidence, window: Window, reference: ArmWindow
) -> Evidence:
    ours = _histogram(objective.metric, window.candidate)
    theirs = _histogram(objective.metric, reference)
    assert ours is not None, "unusable() has looked"
    assert theirs is not None, "unusable() has looked"
    if evidence.reference_edge is None or evidence.candidate_edge is None:
        return _plan_edges(objective, evidence, window, ours, theirs)
    candidate = _latency(objective, window.candidate, ours, evidence.candidate_edge)
    other = _latency(objective, reference, theirs, evidence.reference_edge)
    same = _latency(objective, reference, theirs, evidence.candidate_edge)
    return _voted(evidence, candidate, other, same.x)


def _latency(objective: Objective, arm: ArmWindow, histogram: Histogram, edge: float) -> Part:
    requests = _requests(objective, arm, histogram)
    if objective.tail is not None:
        total, squares = tail_score(histogram, edge)
        return Part(total, histogram.total, requests, squares)
    above = survival(histogram, edge)
    return Part(above, histogram.total, requests, above)


def _plan_edges(
    objective: Objective, evidence: Evidence, window: Window, ours: Histogram, theirs: Histogram
) -> Evidence:
    """Collect reference counts until enough lie beyond the quantile, then pin both edges.

    Stable's requests help where they can: the edge is a choice, not evidence, and these windows do not
    vote.
    """
    planning = evidence.planning
    if len(planning) != len(theirs.counts):
        planning = (0.0,) * len(theirs.counts)
    sources = [theirs]
    stable = None if window.stable is None else _histogram(objective.metric, window.stable)
    if stable is not None and stable is not theirs and stable.edges == theirs.edges:
        sources.append(stable)
    for histogram in sources:
        planning = tuple(a + b for a, b in zip(planning, histogram.counts, strict=True))
    share = 1.0 - float(objective.tail or objective.quantile or 0)
    counts = Histogram(theirs.edges, planning)
    if counts.total * share < PLANNING_EXCEEDANCES:
        return replace(evidence, planning=planning)
    low = max(
        (edge for edge in counts.edges[:-1] if survival(counts, edge) >= share * counts.total),
        default=counts.edges[0],
    )
    comparison = objective.comparison
    regression = float(comparison.max_regression or 0) if comparison is not None else 0.0
    high = _fine_edge(ours, (1.0 + regression) * low)
    if high is None:
        return replace(evidence, planning=planning)
    return replace(evidence, planning=(), voting=True, reference_edge=low, candidate_edge=high)


def _await_steady(
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
