"""What an objective takes from one arm in one window, and which arm it compares with.

It does not know how windows add up.
"""

from __future__ import annotations

from dataclasses import dataclass

from rampway_operator.core.buckets import edge_at_least, survival, tail_score
from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.spec import Against, Metric, Objective

__all__ = [
    "LATENCIES",
    "Part",
    "histogram_of",
    "latency",
    "reference_of",
    "requests_behind",
    "share",
    "unusable",
]

LATENCIES = frozenset({Metric.TTFT, Metric.INTER_TOKEN_LATENCY, Metric.E2E_LATENCY})


@dataclass(frozen=True, slots=True)
class Part:
    """What one arm gives to an objective in one window."""

    x: float
    n: float
    requests: float
    q: float
    """Sum of squared scores of single observations; x for shares."""


def reference_of(objective: Objective, window: Window) -> ArmWindow | None:
    """The arm that the candidate is compared with in this window; None if there is no fair one.

    The Baseline arm while it exists, else Stable. A hit rate depends on the number of pods among which
    sessions are spread, so there Stable is fair only with as many pods as the candidate has.
    """
    if objective.comparison is None:
        return None
    if objective.comparison.against is Against.BASELINE and window.baseline is not None:
        return window.baseline
    stable = window.stable
    if stable is not None and objective.metric is Metric.PREFIX_CACHE_HIT_RATE:
        return stable if stable.pods == window.candidate.pods else None
    return stable


def unusable(objective: Objective, window: Window) -> str:
    """Why the objective can take nothing from this window, as a clause; empty when it can."""
    reference = reference_of(objective, window)
    if objective.comparison is not None and reference is None:
        stable = 0 if window.stable is None else window.stable.pods
        return (
            f"there is no fair reference arm (candidate has {window.candidate.pods} pods, "
            f"stable {stable}, baseline none)"
        )
    for name, arm in (("candidate", window.candidate), ("reference", reference)):
        if arm is not None and _lacks(objective, arm):
            return f"the {name} exports no {_lacks(objective, arm)}"
    if objective.metric in LATENCIES and objective.comparison is None:
        histogram = histogram_of(objective.metric, window.candidate)
        limit = float(objective.slo_max or 0)
        if histogram is not None and edge_at_least(histogram, limit) is None:
            return f"the limit of {limit:g} s lies beyond the candidate's largest bucket"
    return ""


def _lacks(objective: Objective, arm: ArmWindow) -> str:
    tokens = arm.prompt_tokens is None or arm.cached_tokens is None
    if tokens and (objective.steady_only or objective.metric is Metric.PREFIX_CACHE_HIT_RATE):
        return "counters of prompt and cached tokens"
    if objective.metric is Metric.ERROR_RATE and arm.errors is None:
        return "counter of errors"
    if objective.metric in LATENCIES and histogram_of(objective.metric, arm) is None:
        return f"{objective.metric.value} histogram"
    return ""


def histogram_of(metric: Metric, arm: ArmWindow) -> Histogram | None:
    """The arm's buckets of a latency; None where its engine has none."""
    if metric is Metric.TTFT:
        return arm.ttft
    return arm.inter_token if metric is Metric.INTER_TOKEN_LATENCY else arm.e2e


def share(objective: Objective, arm: ArmWindow, *, candidate: bool) -> Part:
    """Badness of one arm: missed tokens or errors.

    With a relative margin r the reference's errors are scaled by 1 + r and its hits by 1 - r, so that the
    difference to test is zero.
    """
    comparison = objective.comparison
    relative = 0.0
    if comparison is not None and comparison.max_regression is not None and not candidate:
        relative = float(comparison.max_regression)
    if objective.metric is Metric.PREFIX_CACHE_HIT_RATE:
        prompt = arm.prompt_tokens or 0.0
        missed = prompt - (1.0 - relative) * min(arm.cached_tokens or 0.0, prompt)
        return Part(missed, prompt, arm.requests, missed)
    errors = (1.0 + relative) * (arm.errors or 0.0)
    return Part(errors, arm.requests, arm.requests, errors)


def latency(objective: Objective, arm: ArmWindow, histogram: Histogram, edge: float) -> Part:
    """What lies above `edge` (seconds): tail scores for a tail, observations for a quantile."""
    requests = requests_behind(objective, arm, histogram)
    if objective.tail is not None:
        total, squares = tail_score(histogram, edge)
        return Part(total, histogram.total, requests, squares)
    above = survival(histogram, edge)
    return Part(above, histogram.total, requests, above)


def requests_behind(objective: Objective, arm: ArmWindow, histogram: Histogram) -> float:
    """Requests behind a histogram; tokens of one request are not independent of each other."""
    if objective.metric is Metric.INTER_TOKEN_LATENCY and arm.requests > 0.0:
        return min(arm.requests, histogram.total)
    return histogram.total
