"""Durations as people write them in a spec: `90s`, `1h30m`, `500ms`. It knows no field."""

from __future__ import annotations

import re
from datetime import timedelta

__all__ = ["format_duration", "parse_duration"]

_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_WHOLE = re.compile(r"(?:[0-9]+(?:ms|s|m|h))+")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_LONGEST_MS = 366 * 24 * 3_600_000


def parse_duration(text: str) -> timedelta:
    """The duration that `text` means. ValueError says what is wrong; more than a year is refused."""
    if len(text) > 32 or _WHOLE.fullmatch(text) is None:
        raise ValueError(
            f"{text[:40]!r} is not a duration, write numbers with h, m, s or ms such as 1h30m"
        )
    total = sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    if total > _LONGEST_MS:
        raise ValueError(f"{text!r} is longer than a year")
    return timedelta(milliseconds=total)


def format_duration(value: timedelta) -> str:
    """`value` as `parse_duration` reads it, in the largest units, to the millisecond; negative is 0s."""
    rest = max(0, round(value / timedelta(milliseconds=1)))
    parts = []
    for unit in ("h", "m", "s", "ms"):
        count, rest = divmod(rest, _MILLISECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
