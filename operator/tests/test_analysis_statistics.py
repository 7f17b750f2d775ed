"""The statistics against scipy and published figures, and the properties that verdicts rest on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from rampway_operator.core.statistics import (
    clopper_pearson,
    incomplete_beta,
    look_level,
    newcombe,
    normal_cdf,
    normal_quantile,
    ratio_error,
    samples_needed,
    spent,
    t_quantile,
    wilson,
)

LEVELS = st.floats(1e-6, 0.4)


@pytest.mark.parametrize("p", [1e-9, 1e-4, 0.025, 0.3, 0.5, 0.8, 0.999, 1 - 1e-9])
def test_given_a_probability_when_the_normal_quantile_is_asked_then_it_is_scipys(p: float) -> None:
    assert normal_quantile(p) == pytest.approx(stats.norm.ppf(p), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("z", [-30.0, -8.0, -1.0, 0.0, 2.5, 9.0])
def test_given_a_far_tail_when_the_normal_cdf_is_asked_then_it_does_not_underflow(z: float) -> None:
    assert normal_cdf(z) == pytest.approx(stats.norm.cdf(z), rel=1e-12)


@given(p=st.floats(1e-7, 0.5 - 1e-6), df=st.integers(1, 20_000))
@settings(max_examples=300, deadline=None)
def test_given_any_degrees_of_freedom_when_the_t_quantile_is_asked_then_it_is_scipys(
    p: float, df: int
) -> None:
    assert t_quantile(p, df) == pytest.approx(stats.t.ppf(p, df), rel=1e-8, abs=1e-9)
    assert t_quantile(1 - p, df) == pytest.approx(-t_quantile(p, df), rel=1e-6, abs=1e-9)


@given(a=st.floats(0.2, 5_000), b=st.floats(0.2, 5_000), x=st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_given_any_shape_when_the_incomplete_beta_is_asked_then_it_is_scipys(
    a: float, b: float, x: float
) -> None:
    assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-9, abs=1e-11)


@given(n=st.integers(1, 5_000), share=st.floats(0, 1), level=LEVELS)
@settings(max_examples=200, deadline=None)
def test_given_any_count_when_exact_and_score_bounds_are_asked_then_they_are_scipys(
    n: int, share: float, level: float
) -> None:
    x = round(share * n)
    test = stats.binomtest(x, n)
    exact = test.proportion_ci(1 - 2 * level, method="exact")
    score = test.proportion_ci(1 - 2 * level, method="wilson")
    assert clopper_pearson(x, n, level, level) == pytest.approx(tuple(exact), rel=1e-7, abs=1e-12)
    assert wilson(x, n, level, level) == pytest.approx(tuple(score), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("candidate", "reference", "low", "high"),
    [
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_given_the_published_examples_when_newcombe_is_asked_then_they_are_found(
    candidate: tuple[int, int], reference: tuple[int, int], low: float, high: float
) -> None:
    arms = [(x / n, float(n)) for x, n in (candidate, reference)]
    assert newcombe(arms[0], arms[1], 0.025, 0.025) == pytest.approx((low, high), abs=5e-5)


@given(
    pc=st.floats(0, 1), pr=st.floats(0, 1), nc=st.floats(1, 1e5), nr=st.floats(1, 1e5), level=LEVELS
)
@settings(max_examples=200, deadline=None)
def test_given_two_shares_when_newcombe_is_asked_then_it_is_a_fair_interval(
    pc: float, pr: float, nc: float, nr: float, level: float
) -> None:
    low, high = newcombe((pc, nc), (pr, nr), level, level)
    assert low - 1e-9 <= pc - pr <= high + 1e-9
    mirrored = newcombe((pr, nr), (pc, nc), level, level)
    assert mirrored == pytest.approx((-high, -low), abs=1e-9)
    more = newcombe((pc, 4 * nc), (pr, 4 * nr), level, level)
    assert more[1] - more[0] <= high - low + 1e-9
    stricter = newcombe((pc, nc), (pr, nr), level / 2, level / 2)
    assert stricter[0] <= low + 1e-12
    assert stricter[1] >= high - 1e-12


def test_given_windows_that_vary_together_when_their_ratio_is_judged_then_the_error_is_the_linearised_one() -> (
    None
):
    rng = np.random.default_rng(1)
    v = rng.uniform(5, 50, 40)
    u = 0.2 * v + rng.normal(0, 2, 40)
    ratio = u.sum() / v.sum()
    expected = np.sqrt(((u - ratio * v) ** 2).sum() * 40 / 39) / v.sum()
    found = ratio_error(40, v.sum(), (u * u).sum(), (u * v).sum(), (v * v).sum(), ratio)
    assert found == pytest.approx(expected, rel=1e-9)
    assert ratio_error(1, 5.0, 1.0, 1.0, 1.0, 0.2) == math.inf


def test_given_equal_windows_when_the_error_is_asked_then_it_is_that_of_a_mean() -> None:
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.15])
    found = ratio_error(5, 5.0, float((values**2).sum()), float(values.sum()), 5.0, values.mean())
    assert found == pytest.approx(stats.sem(values), rel=1e-12)


@given(budget=st.floats(1e-4, 0.5), looks=st.integers(0, 10_000))
def test_given_any_number_of_looks_when_they_spend_then_the_budget_is_never_spent(
    budget: float, looks: int
) -> None:
    assert 0.0 <= spent(budget, looks) < spent(budget, looks + 1) < budget


@given(budget=st.floats(1e-6, 0.05), before=st.floats(1e-6, 0.2), correlation=st.floats(0.05, 0.99))
@settings(max_examples=100, deadline=None)
def test_given_a_look_before_when_the_next_level_is_asked_then_it_is_between_the_budget_and_both(
    budget: float, before: float, correlation: float
) -> None:
    level = look_level(budget, before, correlation)
    assert budget * 0.999 <= level <= before + budget * 1.001


def test_given_two_looks_when_the_second_level_is_set_then_only_first_crossings_cost() -> None:
    budget, before, correlation = 0.01, 0.02, 0.8
    level = look_level(budget, before, correlation)
    z1, z2 = stats.norm.isf(before), stats.norm.isf(level)
    both = stats.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]])
    crossed_only_now = stats.norm.sf(z2) - (
        1 - stats.norm.cdf(z1) - stats.norm.cdf(z2) + both.cdf([z1, z2])
    )
    assert crossed_only_now == pytest.approx(budget, rel=1e-3)


def test_given_many_looks_at_equal_arms_when_all_are_counted_then_false_alarms_stay_within_the_budget() -> (
    None
):
    budget, looks, growth = 0.05, 12, 1.4
    levels, level = [], 0.0
    for look in range(1, looks + 1):
        step = spent(budget, look) - spent(budget, look - 1)
        level = look_level(step, level, math.sqrt(1 / growth) if look > 1 else 0.0)
        levels.append(level)
    rng = np.random.default_rng(7)
    times = growth ** np.arange(looks)
    steps = np.sqrt(np.diff(times, prepend=0.0))
    paths = np.cumsum(rng.normal(size=(200_000, looks)) * steps, axis=1) / np.sqrt(times)
    crossed = (paths > stats.norm.isf(levels)).any(axis=1).mean()
    assert crossed <= spent(budget, looks) * 1.03
    assert crossed >= spent(budget, looks) * 0.85


@given(n=st.floats(10, 1e5), error=st.floats(1e-4, 1), distance=st.floats(1e-4, 1))
def test_given_a_larger_distance_when_samples_are_planned_then_fewer_are_needed(
    n: float, error: float, distance: float
) -> None:
    needed = samples_needed(n, error, distance, 0.01, 0.8)
    assert samples_needed(n, error, 2 * distance, 0.01, 0.8) == pytest.approx(needed / 4)
    assert samples_needed(n, error, 0.0, 0.01, 0.8) == math.inf


def test_given_the_textbook_plan_when_samples_are_planned_then_it_is_met() -> None:
    # z(0.95) + z(0.8) = 2.4865; n = (2.4865 * sd / distance)^2
    assert samples_needed(1.0, 2.0, 0.5, 0.05, 0.8) == pytest.approx(98.92, abs=0.01)
