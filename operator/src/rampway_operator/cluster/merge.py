"""The JSON merge patch between two objects. It does not know what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merge_diff", "paths"]


def merge_diff(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest merge patch that makes `wanted` of `current`; empty when they are equal.

    Lists are replaced as a whole, and a key that `wanted` lacks is removed (RFC 7396).
    """
    patch: dict[str, Any] = {key: None for key in current if key not in wanted}
    for key, value in wanted.items():
        known = current.get(key)
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            if inner := merge_diff(known, value):
                patch[key] = inner
        elif key not in current or known != value:
            patch[key] = value
    return patch


def paths(patch: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that a patch of `merge_diff` changes, as dotted paths; sorted."""
    found: list[str] = []
    for key, value in patch.items():
        if isinstance(value, Mapping) and value:
            found += [f"{key}.{inner}" for inner in paths(value)]
        else:
            found.append(key)
    return tuple(sorted(found))
