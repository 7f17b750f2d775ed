"""Reads numbers from what a model file says of itself, and words why a file cannot be served.

It does not know which keys there are, nor which file format they came from.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["integer", "real", "unservable"]


def integer(path: Path, key: str, value: object, default: int | None) -> int:
    """Return `value`, or `default` where it is None; raises UsageError for anything but an integer."""
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise _no_number(path, key, value)
    return value


def real(path: Path, key: str, value: object, default: float | None) -> float:
    """Return `value`, or `default` where it is None; raises UsageError for anything but a finite number."""
    if value is None and default is not None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
        raise _no_number(path, key, value)
    return float(value)


def unservable(path: Path, got: str, need: str) -> UsageError:
    """Return the error of a model at `path` that was read and cannot be served."""
    return UsageError(f"{path} cannot be served: got {got}, need {need}")


def _no_number(path: Path, key: str, value: object) -> UsageError:
    return unservable(path, f"{key} {'missing' if value is None else repr(value)}", "a number")
