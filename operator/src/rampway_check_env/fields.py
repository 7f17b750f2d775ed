"""Reads JSON values into typed ones and collects every fault with its path.

It knows no requirement by name.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

from rampway_check_env.units import parse_duration, parse_quantity

__all__ = [
    "Field",
    "Wrong",
    "absolute_path",
    "byte_count",
    "flag",
    "integer",
    "list_of",
    "one_of",
    "read_object",
    "record",
    "seconds",
    "shown",
    "text",
]

T = TypeVar("T")
Reader = Callable[[str, Any, List[str]], T]
"""Takes the path and the JSON value; raises `Wrong`, or adds faults of inner values to the list."""


class Wrong(Exception):
    """A value is not what its field needs; the text says `got X, need Y`."""


@dataclass(frozen=True)
class Field(Generic[T]):
    """A field's name in Python and how its JSON value is read; `read` may add faults of its own."""

    name: str
    read: Callable[[str, Any, List[str]], T]
    needed: bool = False


def read_object(
    path: str, raw: Any, fields: Mapping[str, "Field[Any]"], faults: List[str]
) -> Dict[str, Any]:
    """The values of a JSON object by their Python names; unknown and missing names are faults."""
    if not isinstance(raw, dict):
        faults.append("%s: got %s, need an object" % (path, shown(raw)))
        return {}
    parsed = {}
    for key, value in raw.items():
        if key not in fields:
            close = difflib.get_close_matches(key, fields, 1)
            hint = " (did you mean %s?)" % close[0] if close else ""
            faults.append(
                "%s.%s: unknown name%s, need one of %s"
                % (path, key, hint, ", ".join(sorted(fields)))
            )
            continue
        try:
            parsed[fields[key].name] = fields[key].read("%s.%s" % (path, key), value, faults)
        except Wrong as wrong:
            faults.append("%s.%s: %s" % (path, key, wrong))
    for key, field in fields.items():
        if field.needed and key not in raw:
            faults.append("%s.%s: missing" % (path, key))
    return parsed


def shown(value: Any) -> str:
    """A value as JSON, cut at 80 characters, for messages."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def flag(_: str, value: Any, __: List[str]) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Wrong("got %s, need true or false" % shown(value))
    return value


def integer(low: int, high: int) -> Callable[[str, Any, List[str]], int]:
    """A reader of whole numbers from `low` to `high`."""

    def read(_: str, value: Any, __: List[str]) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise Wrong("got %s, need a whole number from %d to %d" % (shown(value), low, high))
        return value

    return read


def byte_count(_: str, value: Any, __: List[str]) -> int:
    """A quantity in bytes, as a number or a text such as 8Gi."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    parsed = parse_quantity(text) if isinstance(text, str) else None
    if parsed is None:
        raise Wrong("got %s, need a quantity in bytes such as 8Gi" % shown(value))
    return parsed


def text(_: str, value: Any, __: List[str]) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise Wrong("got %s, need a text that is not empty" % shown(value))
    return value


def absolute_path(path: str, value: Any, faults: List[str]) -> str:
    """A path that starts with a slash."""
    path_text = text(path, value, faults)
    if not path_text.startswith("/"):
        raise Wrong("got %s, need an absolute path" % shown(value))
    return path_text


def one_of(choices: Mapping[str, T]) -> Callable[[str, Any, List[str]], T]:
    """A reader of one of the names in `choices`, which gives what stands there."""

    def read(_: str, value: Any, __: List[str]) -> T:
        if not isinstance(value, str) or value not in choices:
            raise Wrong("got %s, need one of %s" % (shown(value), ", ".join(choices)))
        return choices[value]

    return read


def seconds(_: str, value: Any, __: List[str]) -> float:
    """A duration above 0 in seconds."""
    parsed = parse_duration(value) if isinstance(value, str) else None
    if not parsed:
        raise Wrong("got %s, need a duration above 0 such as 30s" % shown(value))
    return parsed


def list_of(
    read: Callable[[str, Any, List[str]], T],
) -> Callable[[str, Any, List[str]], Tuple[T, ...]]:
    """A reader of lists; faults of items carry their index."""

    def read_all(path: str, value: Any, faults: List[str]) -> Tuple[T, ...]:
        if not isinstance(value, list):
            raise Wrong("got %s, need a list" % shown(value))
        items = []
        for index, item in enumerate(value):
            try:
                items.append(read("%s[%d]" % (path, index), item, faults))
            except Wrong as wrong:
                faults.append("%s[%d]: %s" % (path, index, wrong))
        return tuple(items)

    return read_all


def record(
    build: Callable[..., T], fields: Mapping[str, "Field[Any]"]
) -> Callable[[str, Any, List[str]], Optional[T]]:
    """A reader of objects, which gives `build(**values)`; None where a value had a fault."""

    def read(path: str, value: Any, faults: List[str]) -> Optional[T]:
        before = len(faults)
        parsed = read_object(path, value, fields, faults)
        return build(**parsed) if len(faults) == before else None

    return read
