"""The rules that other rollout tools apply, on the same windows, for comparison.

Written from their public documentation and at their defaults. They see the P99 of each minute, as
`histogram_quantile` over one minute gives it, of the candidate and of the reference:

- Argo Rollouts, AnalysisTemplate with `successCondition: result[0] <= 1.25 * ...`: `failureLimit` is 0 by
  default, so the first failed measurement aborts.
- Flagger, MetricTemplate with `thresholdRange.max` on the ratio: the canary is rolled back when the number of
  failed checks reaches `threshold`, 5 in its documentation's examples. Checks that pass do not lower it.
- Kayenta's NetflixACAJudge at its defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rampway_operator.core.observed import Histogram, Window

__all__ = ["OTHER_RULES", "argo", "flagger", "kayenta"]

FACTOR = 1.25
"""The margin that all rules are given."""
FLAGGER_THRESHOLD = 5
FRACTION, CONFIDENCE_Z = 0.25, 2.3263
"""Kayenta's judge: a quarter of the estimate, two-sided confidence of 98 %."""
JUDGED_EVERY = 10
"""Minutes between two judgements, each over all minutes so far."""
Floats = NDArray[np.float64]


def argo(windows: Sequence[Window], seconds: float) -> float | None:
    """The minute in which `candidate P99 > 1.25 * reference P99` first holds; None if never."""
    return _nth_failure(windows, seconds, 1)


def flagger(windows: Sequence[Window], seconds: float) -> float | None:
    """The minute of the failed check that reaches Flagger's threshold; None if it is never reached."""
    return _nth_failure(windows, seconds, FLAGGER_THRESHOLD)


def _nth_failure(windows: Sequence[Window], seconds: float, limit: int) -> float | None:
    candidate, reference = _minutes(windows, seconds)
    failed = 0
    for minute, (ours, theirs) in enumerate(zip(candidate, reference, strict=True), start=1):
        failed += bool(ours > FACTOR * theirs)
        if failed == limit:
            return float(minute)
    return None


def kayenta(windows: Sequence[Window], seconds: float) -> float | None:
    """The minute in which a Mann-Whitney judge first calls the candidate's P99 high; None if never.

    High: the lower confidence bound of the shift exceeds a quarter of its estimate (Hodges-Lehmann).
    """
    candidate, reference = _minutes(windows, seconds)
    for end in range(JUDGED_EVERY, len(candidate) + 1, JUDGED_EVERY):
        ours, theirs = candidate[:end], reference[:end]
        shifts = np.sort(np.subtract.outer(ours, theirs).ravel())
        n = float(end)
        rank = n * n / 2.0 - CONFIDENCE_Z * math.sqrt(n * n * (2.0 * n + 1.0) / 12.0)
        lower = shifts[max(0, math.floor(rank))]
        if lower > FRACTION * abs(float(np.median(shifts))):
            return float(end)
    return None


OTHER_RULES: Mapping[str, Callable[[Sequence[Window], float], float | None]] = {
    "threshold, Argo": argo,
    "threshold, Flagger": flagger,
    "Kayenta": kayenta,
}


def _minutes(windows: Sequence[Window], seconds: float) -> tuple[Floats, Floats]:
    per_minute = round(60.0 / seconds)
    sides: tuple[list[float], list[float]] = ([], [])
    for begin in range(0, len(windows) - per_minute + 1, per_minute):
        minute = windows[begin : begin + per_minute]
        arms = [w.candidate.ttft for w in minute], [(w.baseline or w.stable) for w in minute]
        sides[0].append(_p99([h for h in arms[0] if h is not None]))
        sides[1].append(_p99([a.ttft for a in arms[1] if a is not None and a.ttft is not None]))
    return np.array(sides[0]), np.array(sides[1])


def _p99(histograms: Sequence[Histogram]) -> float:
    """As Prometheus computes it: linear within the bucket of the quantile."""
    counts = np.sum([h.counts for h in histograms], axis=0)
    edges = histograms[0].edges
    rank, below = 0.99 * counts.sum(), 0.0
    for i, count in enumerate(counts):
        if count > 0.0 and below + count >= rank:
            low = edges[i - 1] if i else 0.0
            return low if math.isinf(edges[i]) else low + (edges[i] - low) * (rank - below) / count
        below += count
    return math.nan
