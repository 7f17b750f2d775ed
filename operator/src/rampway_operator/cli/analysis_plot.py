"""Both arms over time with intervals, and every look's bounds beside the margin, as one HTML file of SVG.

It computes no verdict; it draws what `core/offline.py` found. The file needs nothing from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from rampway_operator.core.looks import margin
from rampway_operator.core.measures import (
    LATENCIES,
    Part,
    histogram_of,
    latency,
    reference_of,
    share,
)
from rampway_operator.core.observed import ArmWindow, Window
from rampway_operator.core.offline import Judgement, LookPoint
from rampway_operator.core.spec import Objective, Spec
from rampway_operator.core.state import Evidence
from rampway_operator.core.statistics import wilson
from rampway_operator.core.wording import title

__all__ = ["page"]

POINTS = 40
"""Most points of an arm; windows are summed until there are no more."""
WIDTH, HEIGHT, LEFT, TOP = 720, 190, 70, 26
CANDIDATE, REFERENCE, LIMIT = "#cf222e", "#0969da", "#57606a"


@dataclass(frozen=True, slots=True)
class _Point:
    x: float
    value: float
    low: float
    high: float


def page(spec: Spec, windows: Sequence[Window], judgement: Judgement) -> str:
    """The HTML page. `windows` are those that were judged."""
    parts = [
        "<!doctype html><meta charset='utf-8'><title>Rampway analysis</title>",
        "<body style='font-family:sans-serif;max-width:760px;margin:1em auto'>",
        f"<h1>{escape(judgement.outcome.value)} after {judgement.used} windows</h1>",
    ]
    evidence = {item.objective: item for item in judgement.evidence}
    messages = {record.objective: record.message for record in judgement.verdicts}
    for objective in spec.analysis.objectives:
        found = evidence.get(objective.name)
        if found is None:
            continue
        parts.append(f"<h2>{escape(objective.name)}: {escape(title(objective))}</h2>")
        parts.append(f"<p>{escape(messages[objective.name])}</p>")
        parts.append(_arms(objective, found, windows))
        looks = [look for look in judgement.looks if look.objective == objective.name]
        parts.append(_looks(objective, looks, windows))
    return "\n".join([*parts, "</body>\n"])


def _arms(objective: Objective, evidence: Evidence, windows: Sequence[Window]) -> str:
    size = max(1, math.ceil(len(windows) / POINTS))
    groups = [windows[i : i + size] for i in range(0, len(windows), size)]

    def line(of: Callable[[Window], Part | None]) -> list[_Point]:
        points = []
        for group in groups:
            parts = [part for window in group if (part := of(window)) is not None]
            point = _summed(_minutes(windows, group[-1]), parts, scores=objective.tail is not None)
            if point is not None:
                points.append(point)
        return points

    def of_reference(window: Window) -> Part | None:
        reference = reference_of(objective, window)
        return None if reference is None else _part(objective, evidence, reference, candidate=False)

    candidate = line(lambda window: _part(objective, evidence, window.candidate, candidate=True))
    told = "bad share of each arm, 95 % intervals of requests taken as independent"
    return _chart(told, [(CANDIDATE, candidate), (REFERENCE, line(of_reference))], limit=None)


def _part(
    objective: Objective, evidence: Evidence, arm: ArmWindow, *, candidate: bool
) -> Part | None:
    """What the arm gives to the objective in one window; None before edges are known or without data."""
    if objective.metric not in LATENCIES:
        lacks = arm.errors is None if arm.prompt_tokens is None else False
        return None if lacks else share(objective, arm, candidate=candidate)
    histogram = histogram_of(objective.metric, arm)
    edge = evidence.candidate_edge if candidate else evidence.reference_edge
    if histogram is None or edge is None:
        return None
    return latency(objective, arm, histogram, edge)


def _summed(x: float, parts: Sequence[Part], *, scores: bool) -> _Point | None:
    n = sum(part.n for part in parts)
    if n <= 0.0:
        return None
    value, requests = sum(part.x for part in parts) / n, sum(part.requests for part in parts)
    if scores:
        variance = max(0.0, sum(part.q for part in parts) / n - value * value)
        half = 1.96 * math.sqrt(variance / max(requests, 1.0))
        return _Point(x, value, max(0.0, value - half), value + half)
    low, high = wilson(value * requests, requests, 0.025, 0.025)
    return _Point(x, value, low, high)


def _looks(objective: Objective, looks: Sequence[LookPoint], windows: Sequence[Window]) -> str:
    if not looks:
        return "<p>No look yet.</p>"
    begin = windows[0].started_at
    points = [
        _Point(
            (look.at - begin).total_seconds() / 60.0,
            look.bounds.estimate,
            look.bounds.low,
            look.bounds.high,
        )
        for look in looks
        if math.isfinite(look.bounds.low) and math.isfinite(look.bounds.high)
    ]
    told = "difference at each look with its corrected bounds; dashed: the margin (bad is up)"
    return _chart(told, [(CANDIDATE, points)], limit=margin(objective))


def _minutes(windows: Sequence[Window], window: Window) -> float:
    return (window.ended_at - windows[0].started_at).total_seconds() / 60.0


def _chart(told: str, lines: Sequence[tuple[str, Sequence[_Point]]], *, limit: float | None) -> str:
    points = [point for _, line in lines for point in line]
    if not points:
        return f"<p>{escape(told)}: no data</p>"
    values = [v for p in points for v in (p.low, p.high)] + ([limit] if limit is not None else [])
    low, high, end = min(values), max(values), max(point.x for point in points)
    span = (high - low) or 1.0

    def x(minutes: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * minutes / end

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - 24) * (1.0 - (value - low) / span)

    shapes = [_text(LEFT, 14, told)]
    for value in (low, (low + high) / 2.0, high):
        shapes.append(_text(LEFT - 6, y(value) + 4, f"{value:.3g}", "end"))
        shapes.append(f'<path d="M{LEFT} {y(value):.1f}H{WIDTH - 10}" stroke="#d0d7de"/>')
    shapes.append(_text(WIDTH - 10, HEIGHT - 6, f"{end:.0f} min", "end"))
    if limit is not None:
        dashed = f'stroke="{LIMIT}" stroke-dasharray="6 4"'
        shapes.append(f'<path d="M{LEFT} {y(limit):.1f}H{WIDTH - 10}" {dashed}/>')
    for colour, line in lines:
        for point in line:
            bar = f"M{x(point.x):.1f} {y(point.low):.1f}V{y(point.high):.1f}"
            shapes.append(f'<path d="{bar}" stroke="{colour}" stroke-opacity="0.45"/>')
            dot = f'cx="{x(point.x):.1f}" cy="{y(point.value):.1f}" r="2.5"'
            shapes.append(f'<circle {dot} fill="{colour}"/>')
    legend = ((CANDIDATE, "candidate"), (REFERENCE, "reference")) if len(lines) > 1 else ()
    for number, (colour, name) in enumerate(legend):
        shapes.append(_text(LEFT + 110 * number, HEIGHT - 6, f"● {name}", colour=colour))
    body = "\n".join(shapes)
    return f'<svg width="{WIDTH}" height="{HEIGHT}" font-size="12">\n{body}\n</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start", colour: str = "black") -> str:
    style = f'text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
