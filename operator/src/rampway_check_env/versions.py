"""Versions and the conditions on them, such as `>=3.4,<4`.

It does not know what has a version. Numbers compare as numbers and missing parts as 0, so 3.4 equals 3.4.0;
a pre-release (rc1, .dev2) comes before its release; local parts such as +cu128 do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, Optional, Tuple

__all__ = ["Version", "VersionRange", "highest", "parse_range", "parse_version"]

_RELEASE = re.compile(r"\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)(.*)", re.DOTALL)
_PRE = re.compile(r"[-_.]?(a|b|c|rc|alpha|beta|pre|preview|dev)[-_.]?[0-9]*", re.IGNORECASE)
_CONDITION = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,4})\s*")

GRAMMAR = "one or more of >=, >, <=, <, == and != with a version, joined by commas, for example '>=3.4,<4'"


@dataclass(frozen=True, order=True)
class Version:
    """A version that compares by number. `final` is 0 for pre-releases, 1 for releases."""

    release: Tuple[int, ...]
    final: int = 1
    text: str = ""

    def __str__(self) -> str:
        return self.text


def parse_version(text: str) -> Optional[Version]:
    """The version at the start of `text`; None where there is none."""
    match = _RELEASE.match(text)
    if not match:
        return None
    parts = [int(part) for part in match.group(1).split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    final = 0 if _PRE.match(match.group(2)) else 1
    return Version(tuple(parts), final, text.strip())


def highest(texts: Iterable[str]) -> Optional[Version]:
    """The highest version of those that can be read; None when there is none."""
    versions = [v for v in map(parse_version, texts) if v is not None]
    return max(versions, key=lambda v: (v.release, v.final)) if versions else None


@dataclass(frozen=True)
class VersionRange:
    """Conditions that must all hold."""

    conditions: Tuple[Tuple[str, Version], ...]
    text: str

    def __str__(self) -> str:
        return self.text

    def allows(self, version: Version) -> bool:
        """Whether every condition holds for `version`."""
        key = (version.release, version.final)
        return all(_holds(op, key, (bound.release, bound.final)) for op, bound in self.conditions)


def _holds(op: str, left: Tuple[Tuple[int, ...], int], right: Tuple[Tuple[int, ...], int]) -> bool:
    return {
        ">=": left >= right,
        ">": left > right,
        "<=": left <= right,
        "<": left < right,
        "==": left == right,
        "!=": left != right,
    }[op]


def parse_range(text: str) -> Optional[VersionRange]:
    """The conditions in `text`; None where it is not of the form of `GRAMMAR`."""
    conditions = []
    for part in text.split(","):
        match = _CONDITION.fullmatch(part)
        bound = parse_version(match.group(2)) if match else None
        if match is None or bound is None:
            return None
        conditions.append((match.group(1), bound))
    return VersionRange(tuple(conditions), text.strip())
