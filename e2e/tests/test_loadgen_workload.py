from __future__ import annotations

from itertools import islice

from loadgen.report import Outcome, Report, quantile
from loadgen.workload import Workload, chats, system_prompt

LOAD = Workload(
    chats_per_second=2.0,
    turns=3,
    think_seconds=1.0,
    groups=4,
    system_words=50,
    user_words=10,
    max_tokens=8,
    seed=7,
)


def test_given_the_same_seed_when_chats_are_drawn_twice_then_they_are_equal() -> None:
    assert list(islice(chats(LOAD), 50)) == list(islice(chats(LOAD), 50))


def test_given_a_rate_when_many_chats_are_drawn_then_they_start_at_that_rate() -> None:
    last = list(islice(chats(LOAD), 20000))[-1]
    assert 1.95 < 20000 / last.starts_at < 2.05


def test_given_mean_turns_when_many_chats_are_drawn_then_their_mean_is_that() -> None:
    drawn = list(islice(chats(LOAD), 4000))
    assert 2.9 < sum(len(c.users) for c in drawn) / 4000 < 3.1
    assert {len(c.users) for c in drawn} == {1, 2, 3, 4, 5}
    assert all(len(c.thinks) == len(c.users) and c.thinks[0] == 0 for c in drawn)


def test_given_groups_when_chats_are_drawn_then_a_quarter_is_pooled_and_every_group_is_used() -> (
    None
):
    drawn = list(islice(chats(LOAD), 4000))
    assert 0.22 < sum(c.pooled for c in drawn) / 4000 < 0.28
    assert {c.group for c in drawn} == {0, 1, 2, 3}
    assert len({c.session_id for c in drawn}) == 4000


def test_given_a_group_when_its_system_prompt_is_asked_for_twice_then_it_is_the_same_text() -> None:
    assert system_prompt(LOAD, 1) == system_prompt(LOAD, 1)
    assert system_prompt(LOAD, 1) != system_prompt(LOAD, 2)


def test_given_ten_values_when_a_quantile_is_taken_then_it_is_one_of_them() -> None:
    values = [float(v) for v in range(1, 11)]
    assert (quantile(values, 0.5), quantile(values, 0.99), quantile([], 0.5)) == (5.0, 10.0, None)


def test_given_a_failed_and_an_answered_request_when_added_then_they_are_counted_apart() -> None:
    report = Report(sent=3)
    report.add(
        Outcome(
            at=1.0,
            pooled=True,
            revision="a",
            ttft=0.1,
            total=0.2,
            prompt_tokens=10,
            cached_tokens=4,
        )
    )
    report.add(
        Outcome(at=1.0, pooled=False, revision="", ttft=None, total=0.2, error="status 503: x")
    )
    assert (report.answered, report.failed) == ({"pooled": 1}, {"fresh": 1})
    assert '"in_flight":1' in report.line("report", 2.0)
    assert '"cached_tokens":4' in report.line("report", 2.0)
