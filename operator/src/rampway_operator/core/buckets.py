"""Latency histograms: what lies above an edge, and by how much.

It knows buckets only, not whose they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left

from rampway_operator.core.observed import Histogram

__all__ = [
    "FINE",
    "edge_at_least",
    "fine_edge",
    "survival",
    "tail_score",
]

FINE = 1.2
"""Widest bucket, as the ratio of its edges, within which a latency may be placed."""


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


def edge_at_least(histogram: Histogram, seconds: float) -> float | None:
    """The smallest finite edge >= `seconds` (but for rounding); None when buckets end before it."""
    for edge in histogram.edges:
        if edge >= seconds * (1.0 - 1e-9):
            return None if math.isinf(edge) else edge
    return None


def fine_edge(histogram: Histogram, seconds: float) -> float | None:
    """`seconds` itself within a narrow bucket, else the next edge; None when buckets end before it.

    Within a wide bucket nobody knows where the observations lie, so there the margin is widened.
    """
    high = edge_at_least(histogram, seconds)
    if high is None:
        return None
    i = histogram.edges.index(high)
    narrow = i > 0 and high <= FINE * histogram.edges[i - 1]
    return seconds if narrow else high
