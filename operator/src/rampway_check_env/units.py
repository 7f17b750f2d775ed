"""Quantities (60Gi) and durations (30s) as Kubernetes writes them.

It does not know what is measured.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Optional

__all__ = ["format_bytes", "parse_duration", "parse_quantity"]

_QUANTITY = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h))+")
_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_quantity(text: str) -> Optional[int]:
    """The quantity in whole bytes, rounded up; None where `text` is no quantity."""
    match = _QUANTITY.fullmatch(text.strip())
    if not match:
        return None
    number, suffix = Decimal(match.group(1)), match.group(2) or ""
    if suffix in _BINARY:
        value = number * 1024 ** (_BINARY.index(suffix) + 1)
    elif suffix in _DECIMAL:
        value = number.scaleb(_DECIMAL[suffix])
    else:
        value = number.scaleb(int(suffix[1:]))
    return int(value.to_integral_value(rounding="ROUND_CEILING"))


def parse_duration(text: str) -> Optional[float]:
    """The duration in seconds; None where `text` is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def format_bytes(count: int) -> str:
    """`count` bytes in the largest binary unit that leaves a number of at least 1, for example 7.5Gi."""
    value, unit = float(count), ""
    for name in _BINARY:
        if value < 1024:
            break
        value, unit = value / 1024, name
    return "%.4g%s" % (value, unit) if value < 1000 else "%.0f%s" % (value, unit)
