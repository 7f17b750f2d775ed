from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampway_operator.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m", 5400), ("500ms", 0.5), ("90s", 90), ("0s", 0), ("1m1m", 120)],
)
def test_given_a_duration_when_parsed_then_it_is_what_people_mean(
    text: str, seconds: float
) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "10", "m", "-5s", "1.5h", "10 m", "1d", "9" * 40 + "s", "99999h", "５s"]
)
def test_given_something_else_when_parsed_then_the_fault_names_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|year"):
        parse_duration(text)


@given(st.integers(0, 366 * 24 * 3_600_000))
def test_any_duration_reads_back_as_it_was_written(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value
