"""Draws a run: one dot a request over time, and how TTFT and latency are distributed.

HTML with inline SVG needs nothing; PNG needs matplotlib.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rampway_server.bench.client import Answer

__all__ = ["write_plot"]

WIDTH, HEIGHT, MARGIN = 900, 280, 50
COLOURS = {"TTFT": "#1f77b4", "latency": "#d62728"}


def write_plot(path: Path, answers: Sequence[Answer]) -> None:
    """Write `path`, .html or .png; raises UsageError for other names and for a missing library."""
    done = [answer for answer in answers if not answer.error]
    series = {
        "TTFT": [(answer.due, answer.ttft) for answer in done],
        "latency": [(answer.due, answer.latency) for answer in done],
    }
    if path.suffix == ".html":
        path.write_text(_html(series), encoding="utf-8")
    elif path.suffix == ".png":
        _png(path, series)
    else:
        raise UsageError(f"--plot has no known ending: got {str(path)!r}, need .html or .png")


Series = dict[str, list[tuple[float, float]]]


def _html(series: Series) -> str:
    over_time = {name: sorted(points) for name, points in series.items()}
    shares = {name: _distribution(points) for name, points in series.items()}
    return (
        "<!doctype html><meta charset='utf-8'><title>rampway-server bench serve</title>"
        "<body style='font:14px sans-serif'>"
        f"<h3>Seconds, by when the request was due</h3>{_svg(over_time, line=False)}"
        f"<h3>Share of requests (%) within so many seconds</h3>{_svg(shares, line=True)}</body>\n"
    )


def _distribution(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    values = sorted(seconds for _, seconds in points)
    return [(value, 100 * (at + 1) / len(values)) for at, value in enumerate(values)]


def _svg(series: Series, *, line: bool) -> str:
    points = [point for one in series.values() for point in one] or [(0.0, 0.0)]
    right = max(x for x, _ in points) or 1.0
    top = max(y for _, y in points) or 1.0
    inner_width, inner_height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def place(x: float, y: float) -> tuple[float, float]:
        return MARGIN + inner_width * x / right, HEIGHT - MARGIN - inner_height * y / top

    parts = [f"<svg width='{WIDTH}' height='{HEIGHT}' role='img'>"]
    parts.append(
        f"<rect x='{MARGIN}' y='{MARGIN}' width='{inner_width}' height='{inner_height}'"
        " fill='none' stroke='#999'/>"
    )
    for at, (name, one) in enumerate(series.items()):
        placed = [place(x, y) for x, y in one]
        colour = COLOURS[name]
        if line:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
            parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}'/>")
        else:
            parts += [
                f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2' fill='{colour}'/>" for x, y in placed
            ]
        parts.append(
            f"<text x='{MARGIN + 90 * at}' y='{MARGIN - 10}' fill='{colour}'>{name}</text>"
        )
    parts.append(
        f"<text x='{WIDTH - MARGIN}' y='{HEIGHT - 20}' text-anchor='end'>{right:.3g}</text>"
    )
    parts.append(f"<text x='5' y='{MARGIN + 10}'>{top:.3g}</text></svg>")
    return "".join(parts)


def _png(path: Path, series: Series) -> None:
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot .png needs matplotlib: install it, or write an .html")
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(2, 1, figsize=(9, 7))
    for name, points in series.items():
        axes[0].plot(*zip(*points, strict=True), ".", label=name, color=COLOURS[name])
        axes[1].plot(*zip(*_distribution(points), strict=True), label=name, color=COLOURS[name])
    axes[0].set(xlabel="due (s)", ylabel="seconds")
    axes[1].set(xlabel="seconds", ylabel="share of requests (%)")
    axes[0].legend()
    figure.savefig(path)
