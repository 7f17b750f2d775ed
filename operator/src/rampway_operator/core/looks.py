"""Looks at the evidence: when one is due, what it may spend, and the bounds that it gives.

A look is the only moment at which evidence is judged. It does not know what follows from a verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rampway_operator.core.evidence import samples
from rampway_operator.core.measures import LATENCIES
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
from rampway_operator.core.sums import GROUPS, merged

__all__ = [
    "GROWTH",
    "MIN_REQUESTS",
    "MIN_WINDOWS",
    "Bounds",
    "Budgets",
    "bounds",
    "budgets",
    "expected",
    "inflation_of",
    "look",
    "look_is_due",
    "margin",
]

MIN_WINDOWS = 5
"""Windows below which their spread says too little to judge by."""
MIN_REQUESTS = 20
"""Requests of each arm below which the intervals' approximations do not hold."""
MIN_GROUPS = 6
"""Groups of windows below which their spread says too little."""
GROWTH = 1.4
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


def bounds(
    objective: Objective, sums: Sums, level_low: float, level_high: float, inflation: float = 1.0
) -> Bounds:
    """Bounds of the difference, each one-sided at its level, however requests resemble each other.

    Requests within a window vary together, as they do in a queue, so the windows are what is independent:
    their spread, times `inflation` where they resemble their neighbours, gives the standard error, and t
    the price of knowing it from few windows. Shares keep the skew of rare events: their bounds are exact
    or score bounds of the sample of independent requests that would have the same standard error. That is
    never more than the requests there were: rare events that no window has seen are not thereby excluded.
    """
    if sums.windows < 2 or sums.v <= 0.0:
        return Bounds(0.0, -math.inf, math.inf, math.inf)
    estimate = (sums.sc - sums.sr) / sums.v
    error = inflation * ratio_error(sums.windows, sums.v, sums.uu, sums.uv, sums.vv, estimate)
    per_request = (sums.rc + sums.rr) / (sums.nc + sums.nr)
    if not _counts_shares(objective):
        # The variance of both arms together, as they have if the candidate is like the reference.
        alone = math.sqrt(sums.q / (sums.nc + sums.nr) / (sums.v * per_request))
        error = max(error, alone)
        low, high = (t_quantile(1.0 - level, sums.windows - 1) for level in (level_low, level_high))
        return Bounds(estimate, estimate - low * error, estimate + high * error, error)
    # One stratum has v = nc * nr / (nc + nr), so these are the arms' own sizes; over several they are the
    # sizes of two single arms that would know as much.
    pc, pr = (min(max(s / sums.v, 0.0), 1.0) for s in (sums.sc, sums.sr))
    nc, nr = sums.rc, 0.0
    if objective.comparison is not None:
        nc, nr = (sums.v * (sums.nc + sums.nr) / n * per_request for n in (sums.nr, sums.nc))
    alone = math.sqrt(pc * (1.0 - pc) / nc + (pr * (1.0 - pr) / nr if nr > 0.0 else 0.0))
    effect = (error / alone) ** 2 if alone > 0.0 else 0.0
    low, high = (
        _share_bounds((pc, nc), (pr, nr), level, max(1.0, effect * _t_price(level, sums.windows)))[
            side
        ]
        for side, level in enumerate((level_low, level_high))
    )
    return Bounds(estimate, low, high, max(error, alone))


def _t_price(level: float, windows: int) -> float:
    """How many times more requests a normal bound would need to be as wide as the t bound."""
    return (t_quantile(1.0 - level, windows - 1) / normal_quantile(1.0 - level)) ** 2


def _share_bounds(
    candidate: tuple[float, float], reference: tuple[float, float], level: float, effect: float
) -> tuple[float, float]:
    (pc, nc), (pr, nr) = candidate, reference
    if nr <= 0.0:
        return clopper_pearson(pc * nc / effect, nc / effect, level, level)
    return newcombe((pc, nc / effect), (pr, nr / effect), level, level)


def inflation_of(sums: Sums, groups: tuple[float, ...]) -> float:
    """How much the standard error grows when windows are taken in groups; at least 1.

    The largest over the group sizes of which MIN_GROUPS are full. `groups` and `sums` cover the same
    windows.
    """
    if sums.windows < 2 or sums.v <= 0.0 or not groups:
        return 1.0
    estimate = (sums.sc - sums.sr) / sums.v
    single = ratio_error(sums.windows, sums.v, sums.uu, sums.uv, sums.vv, estimate)
    worst = 1.0
    for i, size in enumerate(GROUPS):
        full = sums.windows // size
        if full < MIN_GROUPS or single <= 0.0:
            continue
        uu, uv, vv = groups[5 * i + 2 : 5 * i + 5]
        whole = math.sqrt(sums.windows / (full * size))
        worst = max(worst, whole * ratio_error(full, sums.v, uu, uv, vv, estimate) / single)
    return worst


def _counts_shares(objective: Objective) -> bool:
    """Whether single requests count 0 or 1 in both arms (quantiles, rates with an absolute margin)."""
    if objective.metric in LATENCIES:
        return objective.tail is None
    return objective.comparison is None or objective.comparison.max_drop is not None


def look_is_due(objective: Objective, evidence: Evidence) -> bool:
    """Whether the windows since the last look make another one worth its price.

    Due when the evidence as a whole or the current step's own has grown by GROWTH (first: has
    MIN_WINDOWS and MIN_REQUESTS), and once in each step as soon as it has `minSamples`: no step may pass
    on the windows of another.
    """
    if evidence.pending.windows == 0:
        return False
    total = merged(evidence.sums, evidence.pending)
    step = merged(evidence.step_sums, evidence.pending)
    if _is_enough(objective, total) and total.v >= GROWTH * evidence.sums.v:
        return True
    if not _is_enough(objective, step):
        return False
    before, now = samples(objective, evidence.step_sums), samples(objective, step)
    complete = before < objective.min_samples <= now
    return complete or evidence.step_looks == 0 or step.v >= GROWTH * evidence.step_sums.v


def _is_enough(objective: Objective, sums: Sums) -> bool:
    return sums.windows >= MIN_WINDOWS and samples(objective, sums) >= MIN_REQUESTS


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
        inflation=inflation_of(total, evidence.groups),
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
    high = bounds(objective, judged.sums, judged.fail_level, level, judged.inflation).high
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
    error = bounds(objective, sums, level, level, evidence.inflation).error
    return expected(sums) + normal_quantile(1.0 - level) * error < margin(objective)
