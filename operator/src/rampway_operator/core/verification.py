"""What a provider says of the weight that is asked for: the one answer that `rules_traffic.py` acts on.

It does not know any provider.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Check"]


@dataclass(frozen=True, slots=True)
class Check:
    """Whether traffic agrees with the desired weight; `told` says what was asked, applied and observed."""

    told: str
    verified: bool = False
    weight: int = 0
    """The weight in percent that was seen, once verified."""
    note: str = ""
    """Why it is not the asked one; empty when it is."""
    overdue: bool = False
    """The wait is over: back to the last verified weight, and a pause."""
