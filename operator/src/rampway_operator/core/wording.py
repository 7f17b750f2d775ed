"""Verdicts in words and natural units: ratios of latencies, rates, shares.

It does not decide anything: the same numbers that decided are turned around for people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rampway_operator.core.looks import Bounds, margin
from rampway_operator.core.measures import LATENCIES
from rampway_operator.core.spec import Metric, Objective
from rampway_operator.core.state import Evidence, Sums, Verdict

__all__ = ["Shown", "duration", "in_words", "natural", "seen_with_power", "title"]

_NAMES = {
    Metric.TTFT: "TTFT",
    Metric.INTER_TOKEN_LATENCY: "inter-token latency",
    Metric.E2E_LATENCY: "E2E latency",
    Metric.PREFIX_CACHE_HIT_RATE: "prefix-cache hit rate",
    Metric.ERROR_RATE: "error rate",
}

_LIMIT = 100.0
"""Ratios are shown up to this: beyond it, they only say `far off`."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A verdict's numbers in natural units. Low and high are ordered; the unit depends on the objective.

    Latency comparisons: candidate / reference. Other comparisons: candidate - reference, of hit rates or
    error rates. Absolute limits: the candidate's share.
    """

    estimate: float
    low: float
    high: float
    margin: float
    candidate: float | None
    reference: float | None


def title(objective: Objective) -> str:
    """What is measured: `TTFT P99`, `TTFT tail (slowest 10 %)`, `prefix-cache hit rate`."""
    name = _NAMES[objective.metric]
    if objective.tail is not None:
        return f"{name} tail (slowest {_percent(1.0 - float(objective.tail))})"
    if objective.quantile is not None:
        return f"{name} P{float(objective.quantile) * 100.0:g}"
    return name


def natural(objective: Objective, evidence: Evidence, found: Bounds) -> Shown | None:
    """`found` in natural units; None before there is an estimate."""
    sums = evidence.sums
    if not math.isfinite(found.error) or sums.v <= 0.0:
        return None
    if objective.comparison is None:
        return Shown(found.estimate, found.low, found.high, margin(objective), found.estimate, None)
    if objective.metric in LATENCIES:
        return _ratio(objective, evidence, found)
    if objective.comparison.max_drop is None:
        return _relative_rate(objective, sums, found)
    sign = -1.0 if objective.metric is Metric.PREFIX_CACHE_HIT_RATE else 1.0
    ends = sorted((sign * found.low, sign * found.high))
    candidate, reference = sums.sc / sums.v, sums.sr / sums.v
    if sign < 0.0:
        candidate, reference = 1.0 - candidate, 1.0 - reference
    limit = sign * margin(objective)
    return Shown(sign * found.estimate, ends[0], ends[1], limit, candidate, reference)


def _ratio(objective: Objective, evidence: Evidence, found: Bounds) -> Shown:
    """Latencies as candidate / reference.

    Two points are known: a candidate like the reference (ratio 1) scores as the reference does at the
    candidate's edge, one that is slower by the margin scores as the reference does at its own. Between
    and beyond them the ratio is a power of the score, as in an exponential tail of the logarithm.
    """
    sums = evidence.sums
    low_edge, high_edge = evidence.reference_edge or 1.0, evidence.candidate_edge or 1.0
    allowed = high_edge / low_edge
    own, same = sums.sr / sums.v, sums.same / sums.v
    # Half an observation stands for none, or a few requests would show as a ratio of thousands, or of 0.
    typical = max(0.05, math.log(allowed)) if objective.tail is not None else 1.0
    half = 0.5 * typical / sums.nr
    own, same = max(own, half), max(same, half / 2.0)
    least = 0.5 * typical / sums.nc
    # No tail is heavier than one without a mean, whatever few requests say.
    power = min(1.0, math.log(allowed) / math.log(own / same)) if own > same else 1.0

    def ratio(difference: float) -> float:
        score = own + difference
        if score <= 0.0:
            return 0.0
        return min(_LIMIT, allowed * math.pow(score / own, power))

    estimate = ratio(max(found.estimate, min(found.high, least - own)))
    return Shown(
        estimate,
        ratio(found.low),
        ratio(found.high),
        allowed,
        estimate * low_edge,
        low_edge,
    )


def _relative_rate(objective: Objective, sums: Sums, found: Bounds) -> Shown:
    """Rates as candidate / reference; the reference is scaled by its margin in the sums."""
    comparison = objective.comparison
    relative = float(comparison.max_regression or 0) if comparison is not None else 0.0
    scaled = sums.sr / sums.v
    hit = objective.metric is Metric.PREFIX_CACHE_HIT_RATE
    allowed = 1.0 - relative if hit else 1.0 + relative

    def ratio(difference: float) -> float:
        if hit:
            kept = 1.0 - scaled
            return (kept - difference) / kept * allowed if kept > 0.0 else 1.0
        return min(_LIMIT, (scaled + difference) / scaled * allowed) if scaled > 0.0 else _LIMIT

    ends = sorted((ratio(found.low), ratio(found.high)))
    value = sums.sc / sums.v
    reference = scaled / allowed if not hit else (1.0 - scaled) / allowed
    candidate = 1.0 - value if hit else value
    return Shown(ratio(found.estimate), ends[0], ends[1], allowed, candidate, reference)


def in_words(objective: Objective, evidence: Evidence, shown: Shown, verdict: Verdict) -> str:
    """One sentence with the numbers that decided."""
    sums = evidence.sums
    name = "reference"
    if objective.comparison is not None:
        name = objective.comparison.against.value.lower()
    if objective.comparison is None:
        what = _absolute(objective, evidence, shown)
        counts = f"{sums.rc:,.0f} requests"
    else:
        what = _compared(objective, shown, name)
        counts = f"{sums.rc:,.0f} vs {sums.rr:,.0f} requests"
    return f"{title(objective)}: {what}: {verdict.value.lower()}; {counts}, {sums.windows} windows"


def _compared(objective: Objective, shown: Shown, name: str) -> str:
    comparison = objective.comparison
    ratios = objective.metric in LATENCIES or (
        comparison is not None and comparison.max_drop is None
    )
    if ratios:
        asked = 1.0 + float(comparison.max_regression or 0) if comparison is not None else 1.0
        snapped = (
            f" (asked {asked:.2f}, next bucket)"
            if objective.metric in LATENCIES and abs(shown.margin - asked) > 0.005
            else ""
        )
        return (
            f"candidate {_times(shown.estimate)} {name}, bounds [{_times(shown.low)}, "
            f"{_times(shown.high)}], margin {_times(shown.margin)}{snapped}"
        )
    return (
        f"candidate {_number(shown.candidate)} vs {name} {_number(shown.reference)}, difference "
        f"{shown.estimate:+.3f}, bounds [{shown.low:+.3f}, {shown.high:+.3f}], "
        f"margin {shown.margin:+.3f}"
    )


def _absolute(objective: Objective, evidence: Evidence, shown: Shown) -> str:
    limit = f"at most {_percent(shown.margin)}"
    over = ""
    if objective.metric in LATENCIES:
        over = f" slower than {evidence.candidate_edge:g} s"
        if objective.slo_max is not None and evidence.candidate_edge != float(objective.slo_max):
            over += f" (asked {float(objective.slo_max):g} s, next bucket)"
    return (
        f"{_percent(shown.estimate)}{over}, bounds [{_percent(shown.low)}, "
        f"{_percent(shown.high)}], {limit}"
    )


def seen_with_power(objective: Objective, evidence: Evidence, found: Bounds, reach: float) -> str:
    """The smallest regression that would have failed with the wanted power, as a clause.

    `reach` is the sum of the test's and the power's normal quantiles.
    """
    error = found.error
    if objective.comparison is None and evidence.sums.rc > 0.0:
        limit = margin(objective)
        error = max(error, math.sqrt(limit * (1.0 - limit) / evidence.sums.rc))
    worst = margin(objective) + reach * error
    edge = Bounds(worst, worst, worst, found.error)
    shown = natural(objective, evidence, edge)
    if shown is None:
        return ""
    if objective.metric in LATENCIES and objective.comparison is not None:
        return f"{_times(shown.estimate)} would have been seen with 80 % power"
    if objective.comparison is None:
        return f"{_percent(shown.estimate)} would have been seen with 80 % power"
    return f"{shown.estimate:+.3f} would have been seen with 80 % power"


def duration(seconds: float) -> str:
    """`40 s`, `9 min`, `2.5 h`."""
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    if seconds < 5400.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"


def _percent(share: float) -> str:
    return "<0.01 %" if 0.0 < share < 1e-4 else f"{100.0 * share:.3g} %"


def _times(ratio: float) -> str:
    return f">{_LIMIT:g}×" if ratio >= _LIMIT else f"{ratio:.2f}×"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
