"""Served counts against weights: gross errors show, correct splits of sticky sessions do not look like them."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from rampway_operator.core.observed import Arm, Served
from rampway_operator.core.served import GRACE, Agreement, Judgement, add, judge, still_reached

START = datetime(2026, 1, 1, tzinfo=UTC)
SPLIT = {Arm.STABLE: 95, Arm.CANDIDATE: 5}


def feed(counts: list[dict[Arm, int]], key: str = "route") -> Served:
    """Readings a second apart, after the grace; `counts` are new requests of each."""
    served, total, now = Served(), dict.fromkeys(Arm, 0.0), START
    quiet = [dict[Arm, int]()] * (int(GRACE.total_seconds()) + 2)
    for reading in [*quiet, *counts]:
        now += timedelta(seconds=1)
        for arm, number in reading.items():
            total[arm] += number
        served = add(served, key, {arm.value: (arm, total[arm]) for arm in Arm}, now)
    return served


def said(counts: list[dict[Arm, int]], before: int = 0, *, sticky: bool = False) -> Judgement:
    return judge(feed(counts), SPLIT, before, sticky=sticky)


def test_given_the_asked_split_when_enough_came_then_it_agrees() -> None:
    found = said([{Arm.STABLE: 95, Arm.CANDIDATE: 5}] * 10)
    assert found.agreement is Agreement.AGREES
    assert found.share(Arm.CANDIDATE) == pytest.approx(5.0)


@pytest.mark.parametrize(
    "reading", [{Arm.STABLE: 100}, {Arm.CANDIDATE: 100}, {Arm.STABLE: 50, Arm.CANDIDATE: 50}]
)
def test_given_a_gross_error_when_enough_came_then_it_contradicts(reading: dict[Arm, int]) -> None:
    assert said([reading] * 10).agreement is Agreement.CONTRADICTS


def test_given_requests_at_an_arm_without_weight_then_it_contradicts() -> None:
    reading = {Arm.STABLE: 94, Arm.CANDIDATE: 5, Arm.BASELINE: 1}
    assert said([reading] * 10).agreement is Agreement.CONTRADICTS


def test_given_the_split_of_before_when_another_is_asked_then_it_contradicts() -> None:
    weights = {Arm.STABLE: 75, Arm.CANDIDATE: 25}
    served = feed([{Arm.STABLE: 19, Arm.CANDIDATE: 1}] * 40)
    assert judge(served, weights, 5, sticky=False).agreement is Agreement.CONTRADICTS


def test_given_too_few_requests_then_it_is_open_and_says_how_many_are_needed() -> None:
    found = said([{Arm.STABLE: 10}])
    assert found.agreement is Agreement.OPEN
    assert (found.requests, found.needed) == (10, 400)


def test_given_no_requests_when_time_passes_then_the_clock_stands_still() -> None:
    assert feed([{}] * 500).busy == timedelta(0)
    assert feed([{Arm.STABLE: 1}] * 5 + [{}] * 500).busy == timedelta(seconds=5)


def test_given_requests_that_stop_with_the_change_then_the_clock_goes_on() -> None:
    silent = feed([{Arm.STABLE: 1}] * 5)
    counts = {arm.value: (arm, silent.marks[arm.value]) for arm in Arm}
    for _ in range(100):
        assert silent.at is not None
        silent = add(silent, "other", counts, silent.at + timedelta(seconds=1))
    assert silent.cut
    assert silent.busy == timedelta(seconds=99)
    assert silent.at is not None
    counts["candidate"] = (Arm.CANDIDATE, counts["candidate"][1] + 1)
    assert not add(silent, "other", counts, silent.at + timedelta(seconds=1)).cut


def test_given_another_route_when_counted_then_all_begins_anew_but_no_request_is_counted_twice() -> (
    None
):
    served = feed([{Arm.STABLE: 100}] * 10)
    assert served.at is not None
    later = add(served, "other", {"stable": (Arm.STABLE, 1000.0)}, served.at + timedelta(seconds=1))
    assert (later.readings, later.busy) == ((), timedelta(0))


def test_given_a_restarted_pod_when_its_counter_falls_then_its_requests_count_from_0() -> None:
    served = feed([{Arm.STABLE: 100}] * 10)
    assert served.at is not None
    now = served.at + timedelta(seconds=1)
    assert add(served, "route", {"stable": (Arm.STABLE, 7.0)}, now).readings[-1] == {Arm.STABLE: 7}
    wobble = add(served, "route", {"stable": (Arm.STABLE, 999.0)}, now)
    assert wobble.readings[-1] == {}


def test_given_a_pod_that_nobody_asks_when_3_s_are_over_then_it_gets_no_traffic() -> None:
    served = feed([{Arm.STABLE: 1}])
    assert served.at is not None
    assert still_reached(served, served.at) == {"stable"}
    assert still_reached(served, served.at + timedelta(seconds=4)) == frozenset()


@pytest.mark.parametrize(("weight", "before"), [(5, 0), (25, 5), (50, 25)])
def test_given_sticky_sessions_when_split_rightly_then_hardly_any_judgement_contradicts(
    weight: int, before: int
) -> None:
    """Chats of 1 to 15 turns, each on the arm of its id: 0 of 200 right splits may be called wrong."""
    weights = {Arm.STABLE: 100 - weight, Arm.CANDIDATE: weight}
    chance = random.Random(7)
    wrong = 0
    for _ in range(200):
        total, counts = 0, dict.fromkeys(Arm, 0)
        while total < max(1600, 16_000 / weight) + 200:
            arm = Arm.CANDIDATE if chance.random() < weight / 100 else Arm.STABLE
            turns = chance.randint(1, 15)
            counts[arm] += turns
            total += turns
        found = judge(
            Served(readings=({k: v for k, v in counts.items() if v},)), weights, before, sticky=True
        )
        assert found.agreement is not Agreement.OPEN
        wrong += found.agreement is Agreement.CONTRADICTS
    assert wrong == 0
