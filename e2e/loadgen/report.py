"""What became of the requests: counts, latencies and who served them, as plain numbers.

It does not know how requests are made.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Outcome", "Report", "quantile"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished request. Times are seconds; `error` is empty when it was answered in full."""

    at: float
    pooled: bool
    revision: str
    ttft: float | None
    total: float
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""
    session: str = ""


def quantile(values: list[float], q: float) -> float | None:
    """Return the smallest value that at least a share q of `values` do not exceed; None if empty."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


@dataclass(slots=True)
class Report:
    """The running totals; `recent` feeds the progress line."""

    sent: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    """Answered in full, by connection kind: `fresh` or `pooled`."""
    failed: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    served_by: Counter[str] = field(default_factory=Counter)
    ttfts: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failures: list[dict[str, Any]] = field(default_factory=list)
    """The first 20 failures, with their time, so that they can be laid beside the rollout's events."""
    recent: deque[Outcome] = field(default_factory=lambda: deque(maxlen=400))

    def add(self, outcome: Outcome) -> None:
        """Count one finished request."""
        kind = "pooled" if outcome.pooled else "fresh"
        self.recent.append(outcome)
        if outcome.error:
            self.failed[kind] += 1
            self.errors[outcome.error] += 1
            if len(self.failures) < 20:
                self.failures.append(
                    {
                        "at": round(outcome.at, 2),
                        "kind": kind,
                        "error": outcome.error,
                        "revision": outcome.revision,
                    }
                )
            return
        self.answered[kind] += 1
        self.served_by[outcome.revision or "unknown"] += 1
        self.prompt_tokens += outcome.prompt_tokens
        self.cached_tokens += outcome.cached_tokens
        if outcome.ttft is not None:
            self.ttfts.append(outcome.ttft)

    def line(self, kind: str, now: float) -> str:
        """Return one JSON line: `progress` over the last 10 s, or the final `report` over everything."""
        ttfts = self.ttfts
        served = self.served_by
        if kind == "progress":
            last = [o for o in self.recent if o.at > now - 10 and not o.error]
            ttfts = [o.ttft for o in last if o.ttft is not None]
            served = Counter(o.revision or "unknown" for o in last)
        answered, failed = sum(self.answered.values()), sum(self.failed.values())
        body = {
            "event": kind,
            "at": round(now, 1),
            "sent": self.sent,
            "answered": answered,
            "failed": failed,
            "in_flight": self.sent - answered - failed,
            "ttft_p50": quantile(ttfts, 0.5),
            "ttft_p99": quantile(ttfts, 0.99),
            "served_by": dict(served),
            "errors": dict(self.errors),
        }
        if kind == "report":
            body |= {
                "answered_by_connection": dict(self.answered),
                "failed_by_connection": dict(self.failed),
                "failures": self.failures,
                "prompt_tokens": self.prompt_tokens,
                "cached_tokens": self.cached_tokens,
            }
        return json.dumps(body, separators=(",", ":"))
