"""Looks at the evidence: when one is due, what it may spend, and the bounds that it gives.

A look is the only moment at which evidence is judged. It does not know what follows from a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rampway_operator.core.evidence import LATENCIES, merged
from rampway_operator.core.spec import AnalysisStep, Objective, Spec
from rampway_operator.core.state import Evidence, Sums
from rampway_operator.core.statistics import (
    clopper_pearson,
    look_level,
    newcombe,
    normal_quantile,
    ratio_error,
    spent,
    t_quantile,
)

__all__ = [
    "GROWTH",
    "MIN_REQUESTS",
    "MIN_WINDOWS",
    "Bounds",
    "Budgets",
    "bounds",
    "budgets",
    "expected",
    "look",
    "look_is_due",
    "margin",
]

MIN_WINDOWS = 5
"""Windows below which their spread says too little to judge by."""
MIN_REQUESTS = 10
"""Requests of each arm below which the intervals' approximations do not hold."""
GROWTH = 1.25
"""A look is due when the evidence has grown by this factor since the last one."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """What one objective may spend over a rollout on being wrong."""

    fail: float
    """False abort by the evidence of all steps."""
    guard: float
    """False abort by the windows of one step alone."""
    passing: float
    """Passing a regression of just the margin."""


def budgets(spec: Spec) -> Budgets:
    """The share of one objective: the promise for the rollout, divided over all that can break it.

    A false abort by any blocking objective is one, so they share the budget: four fifths of a share for
    the evidence of all steps, one fifth for the steps' own guards. Passing needs every objective at once,
    so missed regressions are not divided.
    """
    rates = spec.analysis.error_rates
    blocking = max(1, sum(objective.blocking for objective in spec.analysis.objectives))
    share = float(rates.false_abort) / blocking
    steps = 1 + sum(isinstance(step, AnalysisStep) for step in spec.canary.steps)
    return Budgets(
        fail=0.8 * share, guard=0.2 * share / steps, passing=float(rates.missed_regression)
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """A difference, candidate minus reference (or a share, against an absolute limit): bad is high."""

    estimate: float
    low: float
    high: float
    error: float
    """The larger of the two standard errors."""


def margin(objective: Objective) -> float:
    """The largest difference (or share) that is still good.

    Relative margins are in the edges and scales of the two arms already, so theirs is zero.
    """
    if objective.comparison is not None:
        return float(objective.comparison.max_drop or 0)
    if objective.metric in LATENCIES:
        return 1.0 - float(objective.quantile or 0)
    return float(objective.slo_max or 0)


def expected(sums: Sums) -> float:
    """The difference that a candidate just like the reference would show."""
    return (sums.same - sums.sr) / sums.v if sums.v > 0.0 else 0.0


def bounds(objective: Objective, sums: Sums, level_low: float, level_high: float) -> Bounds:
    """Bounds of the difference, each one-sided at its level: the wider of two intervals.

    One takes requests as independent (exact, score or normal), one takes only windows as independent and
    lets requests within a window vary together, as they do in a queue. The first protects against rare
    events that few windows have seen, the second against load that makes requests alike.
    """
    if sums.windows < 2 or sums.v <= 0.0:
        return Bounds(0.0, -math.inf, math.inf, math.inf)
    estimate = (sums.sc - sums.sr) / sums.v
    error = ratio_error(sums.windows, sums.v, sums.uu, sums.uv, sums.vv, estimate)
    df = sums.windows - 1
    low = estimate - t_quantile(1.0 - level_low, df) * error
    high = estimate + t_quantile(1.0 - level_high, df) * error
    alone = _independent(objective, sums, estimate, level_low, level_high)
    return Bounds(estimate, min(low, alone.low), max(high, alone.high), max(error, alone.error))


def _independent(
    objective: Objective, sums: Sums, estimate: float, level_low: float, level_high: float
) -> Bounds:
    per_request = (sums.rc + sums.rr) / (sums.nc + sums.nr)
    if objective.comparison is None:
        low, high = clopper_pearson(estimate * sums.rc, sums.rc, level_low, level_high)
        error = math.sqrt(max(estimate * (1.0 - estimate), 0.0) / sums.rc)
        return Bounds(estimate, low, high, error)
    if _counts_shares(objective):
        # One stratum has v = nc * nr / (nc + nr), so these are the arms' own sizes; over several they
        # are the sizes of two single arms that would know as much.
        nc = sums.v * (sums.nc + sums.nr) / sums.nr * per_request
        nr = sums.v * (sums.nc + sums.nr) / sums.nc * per_request
        pc, pr = (min(max(s / sums.v, 0.0), 1.0) for s in (sums.sc, sums.sr))
        low, high = newcombe((pc, nc), (pr, nr), level_low, level_high)
        error = math.sqrt(pc * (1.0 - pc) / nc + pr * (1.0 - pr) / nr)
        return Bounds(estimate, low, high, error)
    # Scores: the variance of both arms together, as they have if the candidate is like the reference.
    error = math.sqrt(sums.q / (sums.nc + sums.nr) / (sums.v * per_request))
    return Bounds(
        estimate,
        estimate - normal_quantile(1.0 - level_low) * error,
        estimate + normal_quantile(1.0 - level_high) * error,
        error,
    )


def _counts_shares(objective: Objective) -> bool:
    """Whether single requests count 0 or 1 in both arms (quantiles, rates with an absolute margin)."""
    if objective.metric in LATENCIES:
        return objective.tail is None
    return objective.comparison is None or objective.comparison.max_drop is not None


def look_is_due(objective: Objective, evidence: Evidence) -> bool:
    """Whether the windows since the last look make another one worth its price.

    Due at first with MIN_WINDOWS, then at each growth by GROWTH; and once in each step as soon as the
    step's own windows have `minSamples`, because no step may pass on the windows of another.
    """
    if evidence.pending.windows == 0:
        return False
    total = merged(evidence.sums, evidence.pending)
    enough = min(total.rc, math.inf if objective.comparison is None else total.rr)
    if total.windows < MIN_WINDOWS or enough < MIN_REQUESTS:
        return False
    if evidence.looks == 0 or total.v >= GROWTH * evidence.sums.v:
        return True
    step = merged(evidence.step_sums, evidence.pending)
    return evidence.step_sums.rc < objective.min_samples <= step.rc and step.windows >= MIN_WINDOWS


def look(objective: Objective, evidence: Evidence, plan: Budgets, *, final: bool) -> Evidence:
    """The evidence with everything so far judged, and what that spent.

    Each test's level comes from what its look may spend and from how much of that the previous look has
    covered already. Passing is tested, and paid for, only in the last analysis before 100 % and only
    once a candidate like the reference would have an even chance: nothing acts on it before.
    """
    total = merged(evidence.sums, evidence.pending)
    step = merged(evidence.step_sums, evidence.pending)
    looks, step_looks = evidence.looks + 1, evidence.step_looks
    fail_level = look_level(
        spent(plan.fail, looks) - spent(plan.fail, looks - 1),
        evidence.fail_level,
        math.sqrt(evidence.sums.v / total.v),
    )
    step_level = evidence.step_level
    if step.windows >= MIN_WINDOWS:
        step_looks += 1
        step_level = look_level(
            spent(plan.guard, step_looks) - spent(plan.guard, step_looks - 1),
            evidence.step_level,
            math.sqrt(evidence.step_sums.v / step.v),
        )
    judged = replace(
        evidence,
        sums=total,
        step_sums=step,
        pending=Sums(),
        looks=looks,
        step_looks=step_looks,
        alpha_spent=spent(plan.fail, looks),
        step_alpha_spent=spent(plan.guard, step_looks),
        fail_level=fail_level,
        step_level=step_level,
        pass_level=plan.passing / 2.0 if evidence.beta_spent == 0.0 else evidence.pass_level,
    )
    return _look_at_passing(objective, judged, evidence, plan.passing) if final else judged


def _look_at_passing(
    objective: Objective, judged: Evidence, before: Evidence, budget: float
) -> Evidence:
    """Half of the budget for the first look, half of the rest for the next, and so on (as 1/2, 2/3, 3/4)."""
    spent_before = before.beta_spent
    if spent_before == 0.0 and not _passing_is_likely(objective, judged, budget / 2.0):
        return judged
    spent_now = budget / (2.0 - spent_before / budget)
    level = look_level(
        spent_now - spent_before,
        before.pass_level if spent_before > 0.0 else 0.0,
        math.sqrt(before.sums.v / judged.sums.v),
    )
    high = bounds(objective, judged.sums, judged.fail_level, level).high
    return replace(
        judged,
        beta_spent=spent_now,
        pass_level=level,
        passed=before.passed or high < margin(objective),
    )


def _passing_is_likely(objective: Objective, evidence: Evidence, level: float) -> bool:
    """Whether a good candidate would pass at `level` with an even chance, judged by the spread alone."""
    sums = evidence.sums
    if objective.comparison is None:
        return clopper_pearson(0.0, sums.rc, level, level)[1] < margin(objective)
    error = bounds(objective, sums, level, level).error
    return expected(sums) + normal_quantile(1.0 - level) * error < margin(objective)
