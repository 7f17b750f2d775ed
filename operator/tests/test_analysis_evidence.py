"""Windows become sums: what makes the comparison fair, and when windows do not vote."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from analysis_builders import (
    EDGES,
    ERRORS,
    HIT_RATE,
    P99,
    REGRESSION,
    SLO,
    TAIL,
    arm,
    histogram,
    window,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from rampway_operator.core.buckets import survival, tail_score
from rampway_operator.core.evidence import at_step, definition, fold
from rampway_operator.core.looks import inflation_of
from rampway_operator.core.measures import Part, reference_of, unusable
from rampway_operator.core.observed import Histogram, Window
from rampway_operator.core.spec import Against, Comparison, Metric, Objective
from rampway_operator.core.state import Evidence, Sums
from rampway_operator.core.sums import GROUPS, add, grouped, merged

PARTS = st.builds(
    lambda x, n: Part(x * n, n, n, x * n), st.floats(0, 1), st.integers(1, 500).map(float)
)
PAIRS = st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=12)


def folded(pairs: list[tuple[Part, Part]]) -> Sums:
    sums = Sums()
    for candidate, reference in pairs:
        sums = add(sums, candidate, reference)
    return sums


def close(a: Sums, b: Sums) -> bool:
    return all(
        math.isclose(getattr(a, name), getattr(b, name), rel_tol=1e-9, abs_tol=1e-9)
        for name in Sums.__dataclass_fields__
    )


@given(pairs=PAIRS, seed=st.randoms(use_true_random=False))
def test_given_the_same_windows_in_another_order_when_they_are_folded_then_the_sums_are_the_same(
    pairs: list[tuple[Part, Part]], seed: object
) -> None:
    other = list(pairs)
    seed.shuffle(other)  # type: ignore[attr-defined]
    assert close(folded(pairs), folded(other))


@given(pairs=PAIRS, cut=st.integers(0, 12))
def test_given_windows_in_two_parts_when_the_parts_are_merged_then_it_is_as_if_folded_at_once(
    pairs: list[tuple[Part, Part]], cut: int
) -> None:
    assert close(merged(folded(pairs[:cut]), folded(pairs[cut:])), folded(pairs))


@given(pairs=PAIRS)
def test_given_the_arms_swapped_when_they_are_folded_then_the_difference_changes_its_sign(
    pairs: list[tuple[Part, Part]],
) -> None:
    sums, swapped = folded(pairs), folded([(r, c) for c, r in pairs])
    assert sums.sc - sums.sr == pytest.approx(-(swapped.sc - swapped.sr), abs=1e-9)
    assert sums.v == pytest.approx(swapped.v)


@given(
    requests=st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 2000)), min_size=2, max_size=9, unique=True
    ),
    share=st.floats(0.05, 0.95),
)
@settings(max_examples=50, deadline=None)
def test_given_one_window_when_all_ways_to_share_its_requests_are_averaged_then_the_difference_is_zero(
    requests: list[tuple[float, int]], share: float
) -> None:
    # The exact randomisation argument: whoever served a request made no difference, sizes and all.
    expectation = weight = 0.0
    for owners in itertools.product((True, False), repeat=len(requests)):
        chance = math.prod(share if mine else 1 - share for mine in owners)
        sides = []
        for side in (True, False):
            own = [r for r, mine in zip(requests, owners, strict=True) if mine is side]
            sides.append(Part(sum(h * n for h, n in own), float(sum(n for _, n in own)), 1, 0))
        sums = add(Sums(), sides[0], sides[1])
        expectation += chance * (sums.sc - sums.sr)
        weight += chance * sums.v
    assert expectation == pytest.approx(0.0, abs=1e-6 * max(1.0, weight))


def test_given_load_and_split_that_change_together_when_arms_are_equal_then_there_is_no_difference() -> (
    None
):
    # 5 % of a quiet hour, then half of a busy one: pooled shares would differ by 0.02 or more.
    quiet = (Part(5, 100, 100, 5), Part(95, 1900, 1900, 95))
    busy = (Part(300, 1000, 1000, 300), Part(300, 1000, 1000, 300))
    sums = folded([quiet, busy])
    assert sums.xc / sums.nc - sums.xr / sums.nr > 0.1
    assert sums.sc - sums.sr == pytest.approx(0.0, abs=1e-9)


def test_t35_given_a_window_in_which_an_arm_served_nothing_when_it_is_folded_then_it_says_nothing() -> (
    None
):
    nothing, some = Part(0, 0, 0, 0), Part(3, 9, 9, 3)
    assert add(Sums(), nothing, some) == add(Sums(), some, nothing) == Sums()
    assert add(Sums(), nothing, None) == Sums()


def test_given_known_latencies_when_their_tail_is_scored_then_it_is_the_mean_log_excess() -> None:
    rng = np.random.default_rng(3)
    latencies = rng.lognormal(-1.0, 0.6, 4000)
    buckets = histogram(latencies.tolist())
    for edge in (EDGES[60], 0.77, EDGES[70]):
        excess = np.maximum(0.0, np.log(latencies / edge))
        total, squares = tail_score(buckets, edge)
        assert total == pytest.approx(excess.sum(), rel=0.03)
        assert squares == pytest.approx((excess**2).sum(), rel=0.06)
        assert survival(buckets, edge) == pytest.approx((latencies > edge).sum(), rel=0.03)


def test_given_latencies_beyond_all_buckets_when_their_tail_is_scored_then_their_weight_is_bounded() -> (
    None
):
    buckets = Histogram((1.0, 10.0, math.inf), (5.0, 0.0, 2.0))
    assert tail_score(buckets, 1.0)[0] == pytest.approx(2 * math.log(10))
    assert tail_score(buckets, 10.0) == (0.0, 0.0)
    assert survival(buckets, 10.0) == 2.0
    assert survival(buckets, 50.0) == 2.0


@given(
    counts=st.lists(st.integers(0, 50), min_size=122, max_size=122),
    a=st.floats(0.002, 90),
    b=st.floats(0.002, 90),
)
@settings(max_examples=60)
def test_given_a_higher_edge_when_the_tail_is_measured_then_it_is_never_larger(
    counts: list[int], a: float, b: float
) -> None:
    buckets = Histogram(EDGES, (*map(float, counts), 3.0))
    low, high = min(a, b), max(a, b)
    assert survival(buckets, high) <= survival(buckets, low) + 1e-9
    assert tail_score(buckets, high)[0] <= tail_score(buckets, low)[0] + 1e-9


def latency_window(at: int = 0, slow: float = 1.0, count: int = 60) -> Window:
    base = [0.1 * 1.05**i for i in range(count)]
    return window(
        arm(requests=count, latencies=[slow * x for x in base]),
        arm(requests=count, latencies=base),
        arm(requests=count, latencies=base, pods=3),
        at,
    )


def test_given_planning_windows_when_edges_are_pinned_then_they_did_not_vote() -> None:
    evidence = at_step(None, TAIL, 1)
    evidence = fold(TAIL, evidence, latency_window(), max_delta=0.02)
    assert evidence.voting
    assert evidence.pending.windows == 0
    assert evidence.reference_edge in EDGES
    assert evidence.candidate_edge == pytest.approx(1.25 * (evidence.reference_edge or 0))
    pinned = fold(TAIL, evidence, latency_window(1), max_delta=0.02)
    assert (pinned.reference_edge, pinned.pending.windows) == (evidence.reference_edge, 1)


def test_given_too_few_slow_requests_when_edges_are_planned_then_they_are_not_pinned_yet() -> None:
    evidence = fold(P99, at_step(None, P99, 1), latency_window(), max_delta=0.02)
    assert evidence.reference_edge is None
    assert sum(evidence.planning) == 120
    for at in range(1, 5):
        evidence = fold(P99, evidence, latency_window(at), max_delta=0.02)
    assert evidence.reference_edge is not None
    assert evidence.planning == ()


def test_given_coarse_buckets_when_edges_are_pinned_then_the_margin_is_the_next_bucket() -> None:
    coarse = (0.5, 1.0, 2.5, 5.0, 10.0, math.inf)
    both = replace(arm(requests=60), ttft=Histogram(coarse, (0.0, 40.0, 15.0, 5.0, 0.0, 0.0)))
    evidence = fold(TAIL, at_step(None, TAIL, 1), window(both, both), max_delta=0.02)
    assert (evidence.reference_edge, evidence.candidate_edge) == (1.0, 2.5)


def test_given_arms_with_other_buckets_when_edges_are_pinned_then_each_has_its_own() -> None:
    ours = replace(arm(requests=60), ttft=Histogram((1.0, 4.0, math.inf), (40.0, 20.0, 0.0)))
    theirs = replace(arm(requests=60), ttft=Histogram((1.0, 2.0, math.inf), (40.0, 20.0, 0.0)))
    evidence = fold(TAIL, at_step(None, TAIL, 1), window(ours, theirs), max_delta=0.02)
    assert (evidence.reference_edge, evidence.candidate_edge) == (1.0, 4.0)


def test_given_an_objective_that_was_edited_when_the_step_goes_on_then_old_evidence_is_dropped() -> (
    None
):
    old = Evidence("ttft-tail", definition=definition(TAIL), step=1, looks=5, alpha_spent=0.01)
    stricter = replace(TAIL, comparison=Comparison(max_regression=Decimal("0.1")))
    assert at_step(old, TAIL, 1) is old
    assert at_step(old, stricter, 1) == Evidence(
        "ttft-tail", definition=definition(stricter), step=1
    )


def test_given_another_step_when_evidence_is_asked_then_only_the_guard_starts_anew() -> None:
    old = Evidence(
        "ttft-tail",
        definition=definition(TAIL),
        voting=True,
        sums=Sums(windows=9),
        step_sums=Sums(windows=4),
        step=1,
        looks=5,
        step_looks=3,
        alpha_spent=0.01,
        step_alpha_spent=0.001,
        passed=True,
        reference_edge=0.4,
    )
    moved = at_step(old, TAIL, 3)
    assert (moved.sums, moved.looks, moved.alpha_spent) == (old.sums, 5, 0.01)
    assert (moved.step_sums, moved.step_looks, moved.step_alpha_spent) == (Sums(), 0, 0.0)
    assert moved.reference_edge == 0.4
    assert moved.voting
    assert not moved.passed


@pytest.mark.parametrize(
    ("baseline", "stable_pods", "against", "expected"),
    [
        (True, 3, Against.BASELINE, "baseline"),
        (False, 3, Against.BASELINE, None),
        (False, 1, Against.BASELINE, "stable"),
        (True, 3, Against.STABLE, None),
        (True, 1, Against.STABLE, "stable"),
    ],
)
def test_given_other_pod_counts_when_a_hit_rate_is_compared_then_only_equal_ones_are_fair(
    baseline: bool, stable_pods: int, against: Against, expected: str | None
) -> None:
    objective = replace(HIT_RATE, comparison=Comparison(against=against, max_drop=Decimal("0.05")))
    shown = window(arm(), arm() if baseline else None, arm(pods=stable_pods))
    found = reference_of(objective, shown)
    assert found is (None if expected is None else getattr(shown, expected))
    assert ("no fair reference" in unusable(objective, shown)) is (expected is None)


def test_given_no_baseline_when_latency_is_compared_then_stable_stands_in_at_any_size() -> None:
    shown = window(arm(latencies=[0.1]), None, arm(latencies=[0.1], pods=7))
    assert reference_of(TAIL, shown) is shown.stable


@pytest.mark.parametrize(
    ("objective", "lacking", "reason"),
    [
        (ERRORS, arm(errors=None), "exports no counter of errors"),
        (HIT_RATE, arm(hit=None), "exports no counters of prompt and cached tokens"),
        (TAIL, arm(), "exports no TTFT histogram"),
        (SLO, arm(), "exports no TTFT histogram"),
        (
            replace(SLO, slo_max=Decimal(200)),
            arm(latencies=[0.1]),
            "lies beyond the candidate's largest bucket",
        ),
    ],
)
def test_t37_given_a_window_without_what_is_needed_when_it_is_folded_then_nothing_changes_and_it_says_why(
    objective: Objective, lacking: object, reason: str
) -> None:
    shown = window(lacking, arm(latencies=[0.1]))  # type: ignore[arg-type]
    evidence = at_step(None, objective, 1)
    assert fold(objective, evidence, shown, max_delta=0.02) is evidence
    assert reason in unusable(objective, shown)


def test_given_an_absolute_latency_limit_between_edges_when_it_is_counted_then_it_is_the_next_edge() -> (
    None
):
    evidence = fold(
        SLO,
        at_step(None, SLO, 1),
        window(arm(requests=4, latencies=[0.5, 1.9, 2.5, 3.0])),
        max_delta=0.02,
    )
    edge = evidence.candidate_edge or 0
    assert edge in EDGES
    assert 2.0 <= edge < 2.2
    assert (evidence.pending.xc, evidence.pending.nc) == (2.0, 4.0)


STEADY = replace(HIT_RATE, steady_only=True)


def test_t46_given_a_cold_cache_when_its_hit_rate_still_rises_then_windows_do_not_vote() -> None:
    evidence = at_step(None, STEADY, 1)
    for at, hit in enumerate([0.0, 0.1, 0.3, 0.4, 0.55, 0.6, 0.62, 0.61]):
        evidence = fold(
            STEADY, evidence, window(arm(hit=hit), arm(hit=hit), None, at), max_delta=0.02
        )
        assert (evidence.pending.windows > 0) is False
    evidence = fold(STEADY, evidence, window(arm(hit=0.61), arm(hit=0.61)), max_delta=0.02)
    assert evidence.voting
    assert evidence.pending.windows == 1


def test_t46_given_arms_that_never_settle_when_they_are_equally_old_then_they_vote_in_the_end() -> (
    None
):
    evidence = at_step(None, STEADY, 1)
    for at in range(16):
        hit = 0.05 * at + 0.1
        busy = arm(hit=hit, requests=1000)
        evidence = fold(STEADY, evidence, window(busy, busy, None, at), max_delta=0.001)
    assert evidence.voting


def test_given_a_candidate_without_a_cache_when_steadiness_is_asked_then_zero_is_steady() -> None:
    evidence = at_step(None, STEADY, 1)
    for at in range(4):
        evidence = fold(
            STEADY, evidence, window(arm(hit=0.0), arm(hit=0.6), None, at), max_delta=0.02
        )
    assert evidence.voting


def test_given_a_new_step_when_caches_were_steady_then_steadiness_is_asked_again() -> None:
    old = Evidence("hit-rate", definition=definition(STEADY), voting=True, step=1)
    assert not at_step(old, STEADY, 3).voting


def series(seed: int, correlated: bool) -> tuple[Sums, tuple[float, ...]]:
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 1, 256)
    values = np.convolve(noise, np.ones(12) / 12, "same") if correlated else noise
    sums, groups = Sums(), ()
    for i, u in enumerate(values):
        part = Part(10 + u, 20, 20, 10)
        one = add(Sums(), part, Part(10, 20, 20, 10))
        groups = grouped(groups, i, one.sc - one.sr, one.v)
        sums = merged(sums, one)
    return sums, groups


def test_given_windows_like_their_neighbours_when_groups_are_watched_then_the_error_grows() -> None:
    alike = [inflation_of(*series(seed, correlated=True)) for seed in range(20)]
    independent = [inflation_of(*series(seed, correlated=False)) for seed in range(20)]
    assert min(alike) > 1.5
    assert np.median(independent) < 1.3
    assert min(independent) >= 1.0


def test_given_groups_when_they_are_counted_by_hand_then_they_agree() -> None:
    rng = np.random.default_rng(5)
    u, v = rng.normal(size=130), rng.uniform(1, 2, 130)
    groups: tuple[float, ...] = ()
    for i in range(130):
        groups = grouped(groups, i, u[i], v[i])
    for i, size in enumerate(GROUPS):
        full = 130 // size
        gu = u[: full * size].reshape(full, size).sum(1)
        gv = v[: full * size].reshape(full, size).sum(1)
        assert groups[5 * i + 2 : 5 * i + 5] == pytest.approx(
            ((gu * gu).sum(), (gu * gv).sum(), (gv * gv).sum())
        )
        assert groups[5 * i] == pytest.approx(u[full * size :].sum())


def test_given_a_relative_margin_of_a_rate_when_arms_differ_by_it_then_the_difference_is_zero() -> (
    None
):
    objective = Objective("errors", Metric.ERROR_RATE, comparison=REGRESSION)
    evidence = fold(
        objective,
        at_step(None, objective, 1),
        window(arm(requests=1000, errors=50), arm(requests=1000, errors=40)),
        max_delta=0.02,
    )
    assert evidence.pending.sc - evidence.pending.sr == pytest.approx(0.0)
