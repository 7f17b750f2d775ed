"""Figures of the stable revision from before a blue-green switch, kept so that the bake can compare with them.

After the switch no arm of the old revision gets traffic, so the last windows before it stand in as the
reference. Each is used once: a window that stood in twice would count as evidence that nobody gathered.
It does not know what is compared (`measures.py`), nor when the switch is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.spec import Metric, Spec

__all__ = ["WINDOWS", "note", "pair_up", "wanted_windows"]

WINDOWS: Final = 24
"""The longest record, with one latency compared: what fits into status beside the evidence."""

_HISTOGRAMS: Final = (
    (Metric.TTFT, "ttft"),
    (Metric.INTER_TOKEN_LATENCY, "inter_token"),
    (Metric.E2E_LATENCY, "e2e"),
)
_COUNTERS: Final = ("requests", "errors", "prompt_tokens", "cached_tokens")
_NONE: Final = -1.0

Record = tuple[float, ...]


def wanted_windows(spec: Spec) -> int:
    """How many windows the record shall have before the switch: as many as the bake, if that many fit.

    0 where no blocking objective compares.
    """
    if not any(o.comparison is not None and o.blocking for o in spec.analysis.objectives):
        return 0
    bake, interval = spec.canary.bake.total_seconds(), spec.analysis.interval.total_seconds()
    return min(_most(spec), math.ceil(bake / interval))


def note(spec: Spec, known: tuple[Record, ...], windows: Sequence[Window]) -> tuple[Record, ...]:
    """The record with the stable sides of `windows` appended; the oldest go when it is full."""
    metrics = _compared(spec)
    new = [_write(w.stable, metrics) for w in windows if w.stable is not None]
    return (*known, *new)[-_most(spec) :]


def pair_up(
    known: tuple[Record, ...], windows: Sequence[Window]
) -> tuple[tuple[Window, ...], tuple[Record, ...]]:
    """`windows` with recorded stable sides, each used once, and what is left of the record.

    A window for which nothing is left has no reference: only absolute limits can be judged on it.
    """
    paired = []
    for window in windows:
        stable = _read(known[0], window.candidate) if known else None
        known = known[1:]
        paired.append(replace(window, baseline=None, stable=stable))
    return tuple(paired), known


def _compared(spec: Spec) -> set[Metric]:
    return {o.metric for o in spec.analysis.objectives if o.comparison is not None}


def _most(spec: Spec) -> int:
    """Windows that fit: each latency that is compared brings a histogram of its own."""
    return WINDOWS // max(1, sum(metric in _compared(spec) for metric, _ in _HISTOGRAMS))


def _write(arm: ArmWindow, metrics: set[Metric]) -> Record:
    """Pods and counters, then for each histogram: edges, their print, first filled bucket, number, counts."""
    numbers = [float(arm.pods)]
    numbers += [_NONE if (v := getattr(arm, name)) is None else float(v) for name in _COUNTERS]
    for metric, name in _HISTOGRAMS:
        histogram: Histogram | None = getattr(arm, name)
        if histogram is None or metric not in metrics:
            numbers += [_NONE, 0.0, 0.0, 0.0]
            continue
        filled = [i for i, count in enumerate(histogram.counts) if count] or [0]
        counts = histogram.counts[filled[0] : filled[-1] + 1]
        numbers += [float(len(histogram.edges)), _print(histogram.edges)]
        numbers += [float(filled[0]), float(len(counts)), *counts]
    return tuple(numbers)


def _read(record: Record, like: ArmWindow) -> ArmWindow | None:
    """The arm that was written; its histograms have the edges of `like`, or are None where those differ.

    None when the record makes no sense.
    """
    try:
        pods, rest = int(record[0]), list(record[5:])
        counters = [None if value < 0 else value for value in record[1:5]]
        histograms = {name: _histogram(rest, getattr(like, name)) for _, name in _HISTOGRAMS}
    except IndexError:
        return None
    return ArmWindow(
        pods=pods,
        requests=counters[0] or 0.0,
        errors=counters[1],
        prompt_tokens=counters[2],
        cached_tokens=counters[3],
        ttft=histograms["ttft"],
        inter_token=histograms["inter_token"],
        e2e=histograms["e2e"],
    )


def _histogram(rest: list[float], like: Histogram | None) -> Histogram | None:
    """Takes one histogram off the front of `rest`."""
    edges, print_, first, length = rest[0], rest[1], int(rest[2]), int(rest[3])
    counts = rest[4 : 4 + length]
    del rest[: 4 + length]
    if like is None or edges != len(like.edges) or print_ != _print(like.edges):
        return None
    after = len(like.edges) - first - len(counts)
    if len(counts) != length or first < 0 or after < 0:
        return None
    return Histogram(like.edges, (0.0,) * first + tuple(counts) + (0.0,) * after)


def _print(edges: tuple[float, ...]) -> float:
    """A number that other edges would hardly give."""
    return round(sum(i * edge for i, edge in enumerate(edges, 1) if math.isfinite(edge)), 6)
