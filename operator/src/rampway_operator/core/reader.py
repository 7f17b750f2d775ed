"""Walks untyped data, reads typed values and notes every fault with its field path.

It does not know the fields of any object. A faulty value reads as its default, so that one walk finds
all faults; whoever walks must look at `faults` before using a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, TypeVar

from rampway_operator.core.durations import format_duration, parse_duration

__all__ = ["QUANTITY", "Node"]

QUANTITY = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_PODS = re.compile(r"(100|[0-9]{1,2})%")

_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Node:
    """A value at a path. `value` None means absent: null and absent are the same in this API."""

    value: Any
    path: str
    faults: list[str]

    def fault(self, message: str) -> None:
        """Note that this value is wrong; `message` says what it is and what is needed."""
        self.faults.append(f"{self.path}: {message}")

    @property
    def present(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def get(self, key: str) -> Node:
        """The value below `key`; of anything but a mapping it is absent."""
        inner = self.value.get(key) if isinstance(self.value, Mapping) else None
        return Node(inner, f"{self.path}.{key}" if self.path else key, self.faults)

    def object(self, *known: str) -> Node:
        """The node itself, checked to be a mapping with no keys but `known`; nothing known allows any key."""
        if self.value is None:
            return self
        if not isinstance(self.value, Mapping):
            self.fault(f"got {_kind(self.value)}, need an object")
            return Node(None, self.path, self.faults)
        for key in self.value:
            if not isinstance(key, str):
                self.fault(f"key {key!r} is not text")
            elif known and key not in known:
                self.fault(f"unknown field {_show(key)}, need one of {', '.join(known)}")
        return self

    def items(self, most: int) -> Iterator[Node]:
        """The elements of a list of at most `most`."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            self.fault(f"got {_kind(self.value)}, need a list")
            return
        if len(self.value) > most:
            self.fault(f"has {len(self.value)} items, at most {most} are allowed")
        for index, item in enumerate(self.value[:most]):
            yield Node(item, f"{self.path}[{index}]", self.faults)

    def text(
        self, default: str = "", *, pattern: str = "", most: int = 4096, least: int = 0
    ) -> str:
        """A text that matches `pattern` as a whole."""
        if self.value is None:
            if least:
                self.fault("is missing")
            return default
        if not isinstance(self.value, str):
            self.fault(f"got {_kind(self.value)}, need text (quote it)")
            return default
        if len(self.value) > most or len(self.value) < least:
            self.fault(f"has {len(self.value)} characters, need {least} to {most}")
        elif pattern and re.fullmatch(pattern, self.value) is None:
            self.fault(f"{_show(self.value)} does not match {pattern}")
        else:
            return self.value
        return default

    def integer(self, default: int, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        if self.value is None:
            return default
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.fault(f"got {_show(self.value)}, need a whole number")
            return default
        if self.value > most:
            self.fault(f"{_show(self.value)} is above {most}")
            return default
        if self.value < least:
            self.fault(f"{_show(self.value)} is below {least}")
            return default
        return self.value

    def boolean(self, default: bool) -> bool:  # noqa: FBT001 - the default of a field, like its siblings
        """A truth value."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            self.fault(f"got {_show(self.value)}, need true or false")
            return default
        return self.value

    def one_of(self, kind: type[_E], default: _E) -> _E:
        """A member of an enumeration, by its value."""
        if self.value is None:
            return default
        for member in kind:
            if self.value == member.value:
                return member
        names = ", ".join(member.value for member in kind)
        self.fault(f"{_show(self.value)} is not one of {names}")
        return default

    def duration(self, default: timedelta, least: timedelta = timedelta(0)) -> timedelta:
        """A duration of at least `least`."""
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            self.fault(f"got {_kind(self.value)}, need a duration such as 90s")
            return default
        try:
            found = parse_duration(self.value)
        except ValueError as error:
            self.fault(str(error))
            return default
        if found < least:
            self.fault(f"{self.value} is shorter than {format_duration(least)}")
            return default
        return found

    def decimal(self, default: Decimal, least: str, most: str) -> Decimal:
        """A decimal, written as text, from `least` to `most`."""
        if self.value is None:
            return default
        if not isinstance(self.value, str) or _DECIMAL.fullmatch(self.value) is None:
            self.fault(f'got {_show(self.value)}, need a decimal as text such as "0.05"')
            return default
        found = Decimal(self.value)
        if not Decimal(least) <= found <= Decimal(most):
            self.fault(f"{self.value} is not between {least} and {most}")
            return default
        return found

    def quantity(self, default: str) -> str:
        """A Kubernetes quantity such as 16Gi, as text; a whole number is one, too."""
        if self.value is None:
            return default
        value = str(self.value) if isinstance(self.value, int) else self.value
        if (
            isinstance(self.value, bool)
            or not isinstance(value, str)
            or len(value) > 32
            or QUANTITY.fullmatch(value) is None
        ):
            self.fault(f"{_show(self.value)} is not a quantity such as 16Gi, 500m or 4")
            return default
        return value

    def pods(self, default: int | str) -> int | str:
        """A number of pods (0..1000) or a percentage (0%..100%)."""
        if self.value is None:
            return default
        if isinstance(self.value, str) and _PODS.fullmatch(self.value):
            return self.value
        if (
            isinstance(self.value, int)
            and not isinstance(self.value, bool)
            and 0 <= self.value <= 1000
        ):
            return self.value
        self.fault(
            f"{_show(self.value)} is not a number of pods (0 to 1000) or a percentage such as 25%"
        )
        return default


def _kind(value: Any) -> str:
    names = {bool: "a truth value", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(
        type(value), "an object" if isinstance(value, Mapping) else type(value).__name__
    )


def _show(value: Any) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
