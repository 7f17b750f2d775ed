"""Which session ids belong to which arm: buckets of an id's last two hex digits, as header expressions.

It does not know routes. Trailing digits, because those of UUIDs of every version and of hashes spread
evenly, while leading ones of UUIDv1 and v6 do not. Buckets are counted from a place that the candidate's
hash gives, so that it is not the same users that try every candidate.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["ANY_SESSION", "BUCKETS", "baseline_buckets", "candidate_buckets", "pattern", "size"]

BUCKETS: Final = 256
ANY_SESSION: Final = "^.+$"
"""Matches every session id, hex or not: those of no bucket expression stay with stable."""
_HEX: Final = "0123456789abcdef"


def size(weight: int) -> int:
    """How many buckets are `weight` percent: half up, at least one above 0, all of them only at 100."""
    if weight <= 0:
        return 0
    if weight >= 100:
        return BUCKETS
    return min(BUCKETS - 1, max(1, (weight * BUCKETS + 50) // 100))


def candidate_buckets(revision: str, weight: int) -> frozenset[int]:
    """The candidate's buckets; those of a smaller weight are always among those of a larger one."""
    first = _first(revision)
    return frozenset((first + i) % BUCKETS for i in range(size(weight)))


def baseline_buckets(revision: str, weight: int) -> frozenset[int]:
    """As many for the baseline, nested in the same way, from the other end: below 50 % never the candidate's."""
    first = _first(revision)
    return frozenset((first - 1 - i) % BUCKETS for i in range(size(weight)))


def pattern(buckets: Iterable[int]) -> str:
    """One expression for ids whose last two hex digits, in either case, name one of the buckets.

    It begins with `^.*` and ends with `$`, so that gateways that look for a match anywhere and those that
    match the whole value agree. At most 16 alternatives; empty text for no bucket.
    """
    columns: dict[int, set[int]] = {}
    for bucket in buckets:
        columns.setdefault(bucket // 16, set()).add(bucket % 16)
    rows: dict[frozenset[int], set[int]] = {}
    for row, found in columns.items():
        rows.setdefault(frozenset(found), set()).add(row)
    if not rows:
        return ""
    ordered = sorted(rows.items(), key=lambda item: min(item[1]))
    alternatives = [_digits(tens) + _digits(ones) for ones, tens in ordered]
    return f"^.*({'|'.join(alternatives)})$"


def _first(revision: str) -> int:
    """The hash's own alphabet is not hex: any even spread over the buckets will do."""
    value = 0
    for letter in revision:
        value = (31 * value + ord(letter)) % BUCKETS
    return value


def _digits(values: Iterable[int]) -> str:
    lower = "".join(_HEX[value] for value in sorted(values))
    upper = "".join(letter.upper() for letter in lower if letter.isalpha())
    return f"[{lower}{upper}]"
