from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rampway_operator.core.capacity import (
    HALF,
    Layout,
    amount,
    before_traffic,
    expressed,
    layout,
    surge,
    unavailable,
    weight_note,
)
from rampway_operator.core.spec import Canary, Engine, Spec


def spec(
    replicas: int,
    max_surge: int | str = 1,
    max_unavailable: int | str = 0,
    *,
    baseline: bool = True,
) -> Spec:
    canary = Canary(max_surge=max_surge, max_unavailable=max_unavailable, baseline=baseline)
    return Spec(engine=Engine(image="x"), replicas=replicas, canary=canary)


@st.composite
def specs(draw: st.DrawFn) -> Spec:
    replicas = draw(st.integers(1, 60))
    max_surge = draw(st.one_of(st.integers(0, 10), st.sampled_from(["0%", "10%", "25%", "100%"])))
    loss = draw(st.one_of(st.integers(1, 5), st.sampled_from(["10%", "25%", "50%"])))
    found = spec(replicas, max_surge, loss, baseline=draw(st.booleans()))
    if surge(found) == 0:
        assume(replicas > 1 and unavailable(found) > 0)
    return found


@pytest.mark.parametrize(
    ("replicas", "max_surge", "weight", "expected", "percent"),
    [
        (4, 1, 5, Layout(1, 1, 3, 3), 20),
        (4, 1, 25, Layout(1, 1, 3, 2), 25),
        (4, 1, 50, Layout(2, 0, 3, 2), 50),
        (4, 1, 100, Layout(4, 0, 1, 0), 100),
        (1, 1, 5, Layout(1, 0, 1, 1), 50),
        (1, 2, 5, Layout(1, 1, 1, 1), 33),
        (8, 2, 25, Layout(2, 2, 6, 4), 25),
        (4, 1, 0, Layout(0, 0, 4, 4), 0),
    ],
)
def test_given_a_worked_example_when_laid_out_then_it_is_as_the_table_says(
    replicas: int, max_surge: int, weight: int, expected: Layout, percent: int
) -> None:
    found = layout(spec(replicas, max_surge), weight)
    assert found == expected
    together = found.candidate + found.baseline + found.stable_in_rotation
    assert expressed(found.candidate, together) == percent


@given(specs(), st.integers(1, 100))
def test_given_any_weight_when_laid_out_then_it_fits_the_surge_and_serves_enough(
    found: Spec, weight: int
) -> None:
    lay, limit = layout(found, weight), found.replicas + surge(found)
    together = lay.candidate + lay.baseline + lay.stable_in_rotation
    assert lay.candidate >= 1
    assert lay.stable >= max(1, lay.stable_in_rotation)
    assert lay.candidate + lay.baseline + lay.stable <= limit
    assert together >= found.replicas - unavailable(found)
    if weight < 100:
        assert lay.stable_in_rotation >= 1
        raised = 100 * lay.candidate >= weight * together
        assert raised or lay.stable_in_rotation == 1, "lowered only to leave one stable pod"


@given(specs(), st.integers(1, HALF))
def test_given_a_weight_up_to_half_when_laid_out_then_a_reference_has_equally_many_pods(
    found: Spec, weight: int
) -> None:
    assume(found.canary.baseline)
    lay = layout(found, weight)
    assert lay.candidate in (lay.baseline, lay.stable_in_rotation)


@given(specs(), st.integers(1, 100))
def test_given_no_traffic_yet_when_pods_are_prepared_then_stable_keeps_all_that_it_must(
    found: Spec, weight: int
) -> None:
    lay = before_traffic(found, weight)
    assert lay.candidate >= 1
    assert lay.candidate + lay.stable <= found.replicas + surge(found)
    assert lay.stable_in_rotation >= found.replicas - unavailable(found)


@given(st.integers(1, 60), st.integers(1, 99))
def test_given_growing_weights_when_laid_out_then_the_candidate_never_shrinks(
    replicas: int, weight: int
) -> None:
    found = spec(replicas, "25%")
    assert layout(found, weight).candidate <= layout(found, weight + 1).candidate


def test_given_percentages_when_counted_then_surge_rounds_up_and_loss_rounds_down() -> None:
    assert amount("25%", 5, round_up=True) == 2
    assert amount("25%", 5, round_up=False) == 1
    assert surge(spec(1, "1%")) == 1
    assert surge(spec(4, "0%")) == 0
    assert unavailable(spec(4, 1, 2)) == 0, "loss is only spent where there is no surge"
    assert unavailable(replace(spec(4, 0, "50%"))) == 2


def test_given_a_weight_that_pods_cannot_express_when_noted_then_it_says_what_was_asked() -> None:
    assert weight_note(5, 1, 5) == "asked 5 %, 1 of 5 pods = 20 %"
    assert weight_note(50, 2, 4) == ""
