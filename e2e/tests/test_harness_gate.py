"""What the traffic gate says of records that are known."""

from __future__ import annotations

import pytest

from harness.gate import moves_back, share
from loadgen.report import Outcome


def served(at: float, session: str, revision: str) -> Outcome:
    return Outcome(at=at, pooled=True, revision=revision, ttft=0.1, total=0.2, session=session)


def test_given_sessions_that_stay_together_then_their_share_is_less_certain_than_requests() -> None:
    clustered = [served(i, f"s{i // 10}", "new" if i // 10 % 4 == 0 else "old") for i in range(400)]
    single = [served(i, f"s{i}", "new" if i % 4 == 0 else "old") for i in range(400)]

    assert share(clustered, "new")[0] == share(single, "new")[0] == 0.25
    assert share(clustered, "new")[1] == pytest.approx(share(single, "new")[1] * 10**0.5)


def test_given_a_session_that_goes_back_then_it_is_told_and_one_that_moved_is_not() -> None:
    there = [served(1, "a", "old"), served(2, "a", "new"), served(3, "a", "new")]

    assert moves_back(there, "new") == []
    assert moves_back([*there, served(4, "a", "old")], "new") == ["a"]
