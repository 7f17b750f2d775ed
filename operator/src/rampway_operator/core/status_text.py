"""Values in status as text, exactly there and back: instants, floats, lists of floats, short sentences.

It does not know what the values mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

__all__ = [
    "camel",
    "instant",
    "number",
    "numbers",
    "parse_instant",
    "parse_number",
    "parse_numbers",
    "short",
]

MAX_MESSAGE = 400


def camel(name: str) -> str:
    """A Python field's name as status writes it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def instant(value: datetime) -> str:
    """RFC 3339 in UTC, with microseconds only where there are any."""
    text = value.astimezone(UTC).isoformat(
        timespec="microseconds" if value.microsecond else "seconds"
    )
    return text.replace("+00:00", "Z")


def parse_instant(text: object) -> datetime | None:
    """The instant that `text` writes, in UTC; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        value = datetime.fromisoformat(text)
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def number(value: float) -> str:
    """The shortest text that reads back as the same float; whole numbers without `.0`."""
    text = repr(float(value))
    return text.removesuffix(".0")


def parse_number(text: object) -> float | None:
    """The float that `text` writes; None when it is none or not finite."""
    if not isinstance(text, str | int | float) or isinstance(text, bool):
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def numbers(values: Iterable[float]) -> str:
    """Floats in one string, separated by spaces: a list of strings would cost half of status."""
    return " ".join(number(value) for value in values)


def parse_numbers(text: object) -> tuple[float, ...] | None:
    """The floats of `numbers`; None when any is none."""
    if not isinstance(text, str):
        return None
    found = [parse_number(part) for part in text.split()]
    kept = tuple(value for value in found if value is not None)
    return kept if len(kept) == len(found) else None


def short(text: str, limit: int = MAX_MESSAGE) -> str:
    """`text` without line breaks and control characters, cut to `limit` characters with an ellipsis."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    clean = " ".join(text.split())
    return clean if len(clean) <= limit else clean[: limit - 1].rstrip() + "…"
