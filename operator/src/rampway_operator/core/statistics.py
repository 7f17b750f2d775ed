"""Intervals, looks and sample sizes: pure functions of numbers, checked against scipy in the tests.

It knows nothing of objectives, arms or windows. All levels are one-sided.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

__all__ = [
    "HALF_SPENT",
    "clopper_pearson",
    "incomplete_beta",
    "look_level",
    "newcombe",
    "normal_cdf",
    "normal_quantile",
    "ratio_error",
    "samples_needed",
    "spent",
    "t_quantile",
    "wilson",
]

_NORMAL = NormalDist()
_TINY = 1e-300
_EPS = 1e-15

HALF_SPENT = 10
"""Looks after which half of an error budget is spent."""


def normal_cdf(z: float) -> float:
    """P(Z <= z); accurate in both tails."""
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def normal_quantile(p: float) -> float:
    """The z with P(Z <= z) = p, for 0 < p < 1."""
    return _NORMAL.inv_cdf(p)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz's method)."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            value *= c * d
        if abs(c * d - 1.0) < _EPS:
            break
    return value


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for a, b > 0."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(log_front) * _beta_fraction(a, b, x) / a
    return 1.0 - math.exp(log_front) * _beta_fraction(b, a, 1.0 - x) / b


def _beta_quantile(a: float, b: float, p: float) -> float:
    """The x with I_x(a, b) = p: Newton's method, kept inside a bracket that only shrinks."""
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(200):
        off = incomplete_beta(a, b, x) - p
        low, high = (x, high) if off < 0.0 else (low, x)
        log_density = (a - 1.0) * math.log(x) + (b - 1.0) * math.log1p(-x) - log_beta
        step = x - off * math.exp(-log_density) if log_density > -600.0 else -1.0
        after = step if low < step < high else 0.5 * (low + high)
        if abs(after - x) <= 1e-15 * x or high - low <= 1e-16 * high:
            return after
        x = after
    return x


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The t with P(T <= t) = p for Student's distribution, 0 < p < 1, df > 0."""
    tail = min(p, 1.0 - p)
    if tail == 0.5:
        return 0.0
    # P(|T| > t) = I_x(df/2, 1/2) with x = df / (df + t^2). The smaller of x and 1 - x is solved for, so
    # that nothing cancels.
    if tail < 0.25:
        x = _beta_quantile(df / 2.0, 0.5, 2.0 * tail)
        t = math.sqrt(df * (1.0 - x) / x) if x > 0.0 else math.inf
    else:
        y = _beta_quantile(0.5, df / 2.0, 1.0 - 2.0 * tail)
        t = math.sqrt(df * y / (1.0 - y))
    return t if p > 0.5 else -t


def wilson(x: float, n: float, level_low: float, level_high: float) -> tuple[float, float]:
    """Wilson's score bounds of a share x/n, each one-sided at its level. (0, 1) without data.

    `x` and `n` need not be whole: weighted counts are welcome.
    """
    if n <= 0.0:
        return 0.0, 1.0
    share = min(max(x / n, 0.0), 1.0)

    def bound(level: float, sign: float) -> float:
        z = normal_quantile(1.0 - level)
        centre = share + z * z / (2.0 * n)
        half = z * math.sqrt(share * (1.0 - share) / n + z * z / (4.0 * n * n))
        return (centre + sign * half) / (1.0 + z * z / n)

    return (
        0.0 if share == 0.0 else max(0.0, bound(level_low, -1.0)),
        1.0 if share == 1.0 else min(1.0, bound(level_high, 1.0)),
    )


@lru_cache(maxsize=4096)
def clopper_pearson(x: float, n: float, level_low: float, level_high: float) -> tuple[float, float]:
    """Exact bounds of a share x/n, each one-sided at its level. (0, 1) without data.

    Score bounds reject a limit of 0.5 % after one error in forty requests; these do not.
    """
    if n <= 0.0:
        return 0.0, 1.0
    x = min(max(x, 0.0), n)
    low = 0.0 if x <= 0.0 else _beta_quantile(x, n - x + 1.0, level_low)
    high = 1.0 if x >= n else _beta_quantile(x + 1.0, n - x, 1.0 - level_high)
    return low, high


def newcombe(
    candidate: tuple[float, float],
    reference: tuple[float, float],
    level_low: float,
    level_high: float,
) -> tuple[float, float]:
    """Newcombe's hybrid score bounds of the difference of two shares, candidate minus reference.

    Each arm is (share, sample size), the sizes need not be whole. Bounds are one-sided at their levels.
    """
    (pc, nc), (pr, nr) = candidate, reference
    c_low, c_high = wilson(pc * nc, nc, level_low, level_high)
    r_low, r_high = wilson(pr * nr, nr, level_high, level_low)
    difference = pc - pr
    low = difference - math.hypot(pc - c_low, r_high - pr)
    high = difference + math.hypot(c_high - pc, pr - r_low)
    return max(-1.0, low), min(1.0, high)


def ratio_error(
    windows: int, total_v: float, uu: float, uv: float, vv: float, ratio: float
) -> float:
    """Standard error of the ratio sum(u) / sum(v) over windows that vary together.

    Linearised: the residual of a window is u - ratio * v. Infinite with fewer than two windows.
    """
    if windows < 2 or total_v <= 0.0:
        return math.inf
    residual = max(0.0, uu - 2.0 * ratio * uv + ratio * ratio * vv)
    return math.sqrt(residual * windows / (windows - 1)) / total_v


def spent(budget: float, looks: int) -> float:
    """The part of an error budget that `looks` looks have spent.

    It rises for ever and never reaches the budget, because nobody knows how long a canary will run; half
    is spent after HALF_SPENT looks. Looks are taken when the evidence has grown by a fifth, so this
    spends evenly over the logarithm of the sample, as a Pocock boundary does, then ever less.
    """
    return budget * looks / (looks + HALF_SPENT)


def _first_crossing(z_before: float, z_now: float, correlation: float) -> float:
    """P(Z_before < z_before and Z_now >= z_now) for two standard normals (Simpson's rule)."""
    spread = math.sqrt(max(1.0 - correlation * correlation, 1e-12))
    # Below `start` the second event is impossible, or the first variable is.
    start, steps = max(-9.0, (z_now - 8.0 * spread) / correlation), 96
    if z_before <= start:
        return 0.0
    width = (z_before - start) / steps
    total = 0.0
    for i in range(steps + 1):
        x = start + i * width
        weight = 1.0 if i in (0, steps) else (4.0 if i % 2 else 2.0)
        total += weight * math.exp(-0.5 * x * x) * normal_cdf((correlation * x - z_now) / spread)
    return total * width / 3.0 / math.sqrt(2.0 * math.pi)


@lru_cache(maxsize=1024)
def look_level(budget: float, before: float, correlation: float) -> float:
    """The one-sided level at which a look may test so that it adds at most `budget` of false alarms.

    `before` is the level of the previous look (0: none), `correlation` that of the two looks' statistics:
    the root of the ratio of their information. A false alarm is counted at its first crossing, and a first
    crossing now means no crossing at the previous look: so the budgets of all looks add up to a bound
    of the whole path's false alarms, whatever the dependence of looks further apart.
    """
    if before <= 0.0 or correlation <= 0.0:
        return budget
    z_before = normal_quantile(1.0 - before)
    low, high = normal_quantile(1.0 - min(0.5, before + budget)), normal_quantile(1.0 - budget)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if _first_crossing(z_before, middle, correlation) > budget:
            low = middle
        else:
            high = middle
        if high - low < 1e-8:
            break
    return normal_cdf(-high)


def samples_needed(n: float, error: float, distance: float, level: float, power: float) -> float:
    """The sample at which a true value `distance` away from the margin is told from it with `power`.

    `error` is the standard error that `n` samples had; it shrinks with the root. Infinite at distance 0.
    """
    if distance <= 0.0:
        return math.inf
    reach = normal_quantile(1.0 - level) + normal_quantile(power)
    return n * (reach * error / distance) ** 2
