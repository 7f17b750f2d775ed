"""The share of aborted rollouts as a dot plot in SVG: one row a load and candidate, one mark a rule.

It knows nothing of how the shares were found.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

__all__ = ["rates_svg"]

ROW, LEFT, WIDTH, TOP = 22, 290, 420, 56
COLOURS = ("#0969da", "#cf222e", "#bf8700", "#57606a")
RADIUS = 6


def rates_svg(aborted: Mapping[tuple[str, str, str], float], ours: str) -> str:
    """`aborted` maps (load, candidate, rule) to a share; `ours` is the rule that is drawn filled."""
    rows = list(dict.fromkeys((load, candidate) for load, candidate, _ in aborted))
    rules = list(dict.fromkeys(rule for _, _, rule in aborted))
    height = TOP + ROW * len(rows) + 40
    size = f'width="{LEFT + WIDTH + 40}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, rule in enumerate(rules):
        x = LEFT + 130 * number - 100
        parts.append(_mark(x, 16, number, filled=rule == ours) + _text(x + 12, 20, rule))
    for percent in (0, 25, 50, 75, 100):
        x = LEFT + WIDTH * percent / 100
        parts.append(f'<path d="M{x} {TOP - 10}V{height - 34}" stroke="#d0d7de"/>')
        parts.append(_text(x, height - 18, f"{percent} %", "middle"))
    parts.append(_text(LEFT + WIDTH / 2, height - 3, "aborted rollouts", "middle"))
    for index, (load, candidate) in enumerate(rows):
        y = TOP + ROW * index
        parts.append(_text(LEFT - 14, y + 4, f"{load}: {candidate}", "end"))
        for number, rule in reversed(list(enumerate(rules))):
            share = aborted.get((load, candidate, rule))
            if share is not None:
                parts.append(_mark(LEFT + WIDTH * share, y, number, filled=rule == ours))
    return "\n".join([*parts, "</svg>\n"])


def _mark(x: float, y: float, number: int, *, filled: bool) -> str:
    colour = COLOURS[number % len(COLOURS)]
    fill = colour if filled else "none"
    return f'<circle cx="{x:.1f}" cy="{y}" r="{RADIUS}" fill="{fill}" stroke="{colour}" stroke-width="2"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
