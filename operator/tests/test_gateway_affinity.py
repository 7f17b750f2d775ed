"""Sessions by header: exact nesting of buckets, and expressions that mean exactly their buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gateway_world import GATEWAY
from hypothesis import given, settings
from hypothesis import strategies as st
from world_builders import basic_spec

from rampway_operator.core import affinity
from rampway_operator.core.observed import Arm, Observed
from rampway_operator.core.parse import parse
from rampway_operator.core.route import Share, agrees, http_route, shares_of
from rampway_operator.core.state import State

HASHES = st.text("bcdfghjklmnpqrstvwxz2456789", min_size=10, max_size=10)
WEIGHTS = st.integers(0, 100)
TRAFFIC = {
    "provider": {
        "gatewayAPI": GATEWAY | {"hostnames": ["chat.example"], "timeouts": {"request": "10m"}}
    },
    "affinity": {"type": "Header", "header": {"name": "x-session-id"}},
}
OBSERVED = Observed("chat", "prod", "uid", 1, "1", "hash", State())


def matched(expression: str, *, whole: bool) -> set[int]:
    """The buckets whose ids match, in both cases, by gateways that search and those that match the whole."""
    test = re.fullmatch if whole else re.search
    found = set[int]()
    for bucket in range(affinity.BUCKETS):
        digits = f"{bucket:02x}"
        hits = [
            bool(expression and test(expression, f"9b2e-{d}")) for d in (digits, digits.upper())
        ]
        assert hits[0] == hits[1]
        found |= {bucket} if hits[0] else set()
    return found


@given(HASHES, WEIGHTS, WEIGHTS)
def test_given_two_weights_when_one_is_larger_then_its_buckets_contain_the_others(
    revision: str, one: int, other: int
) -> None:
    low, high = sorted((one, other))
    assert affinity.candidate_buckets(revision, low) <= affinity.candidate_buckets(revision, high)
    assert affinity.baseline_buckets(revision, low) <= affinity.baseline_buckets(revision, high)


@given(HASHES, st.integers(0, 49))
def test_given_a_baseline_when_below_half_then_no_bucket_is_both_arms(
    revision: str, weight: int
) -> None:
    mine, copies = (
        affinity.candidate_buckets(revision, weight),
        affinity.baseline_buckets(revision, weight),
    )
    assert not mine & copies
    assert len(mine) == len(copies)
    assert len(mine | copies) < affinity.BUCKETS


@given(WEIGHTS)
def test_given_a_weight_when_in_buckets_then_the_share_is_off_by_at_most_half_a_bucket(
    weight: int,
) -> None:
    share = affinity.size(weight) / affinity.BUCKETS
    assert abs(share - weight / 100) <= 0.5 / affinity.BUCKETS
    assert (affinity.size(weight) == affinity.BUCKETS) == (weight == 100)
    assert (affinity.size(weight) > 0) == (weight > 0)


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(0, 255)))
def test_given_any_buckets_when_written_as_an_expression_then_exactly_they_match(
    buckets: Iterable[int],
) -> None:
    expression = affinity.pattern(buckets)
    assert matched(expression, whole=True) == matched(expression, whole=False) == set(buckets)
    assert expression.count("|") < 64
    assert len(expression) <= 4096


def rules(weight: int, revision: str = "bbbbbbbbbb") -> list[dict[str, object]]:
    """The rules of a route with a candidate, a baseline below half, and stable."""
    spec = parse({"metadata": {"name": "chat"}, "spec": basic_spec(traffic=TRAFFIC)})
    copies = weight if weight < 50 else 0
    shares = (
        Share(Arm.STABLE, "ssssssssss", 100 - weight - copies),
        Share(Arm.CANDIDATE, revision, weight),
        Share(Arm.BASELINE, "ssssssssss", copies),
    )
    route = http_route(spec, OBSERVED, tuple(s for s in shares if s.weight))
    found: list[dict[str, object]] = route["spec"]["rules"]
    return found


def served_by(found: list[dict[str, object]], session: str) -> str:
    """The Service that a conformant gateway sends a session to: the first rule whose header matches."""
    for rule in found:
        match = rule["matches"][0]  # type: ignore[index]
        for header in match.get("headers", []):
            if re.search(header["value"], session):
                return str(rule["backendRefs"][0]["name"])  # type: ignore[index]
    raise AssertionError("a session id fell into the rule for everybody")


@settings(max_examples=20, deadline=None)
@given(
    HASHES, st.lists(st.integers(1, 99), min_size=2, max_size=6), st.lists(st.uuids(), min_size=20)
)
def test_given_growing_weights_when_sessions_go_on_then_none_leaves_the_candidate_again(
    revision: str, weights: list[int], sessions: list[object]
) -> None:
    on_candidate = set[str]()
    for weight in sorted(weights):
        found = rules(weight, revision)
        now = {str(s) for s in sessions if served_by(found, str(s)) == f"chat-{revision}"}
        assert on_candidate <= now
        on_candidate = now


def test_given_ids_that_are_not_hex_when_split_then_stable_serves_them() -> None:
    for session in ("user-xy", "z", "Zürich", "12g"):
        assert served_by(rules(25), session) == "chat-ssssssssss"


def test_given_requests_without_the_header_when_split_then_the_last_rule_has_the_weights() -> None:
    found = rules(5)
    assert "headers" not in found[-1]["matches"][0]  # type: ignore[index]
    assert shares_of({"rules": found}) == {
        "chat-ssssssssss": 90, "chat-bbbbbbbbbb": 5, "chat-ssssssssss-b": 5,
    }  # fmt: skip


def test_given_a_live_route_when_something_was_added_or_changed_then_it_does_not_agree() -> None:
    wanted = {"parentRefs": [{"name": "public"}], "rules": rules(5)}
    defaulted = {"parentRefs": [{"name": "public", "group": "g"}], "rules": rules(5)}
    assert agrees(defaulted, wanted)
    assert not agrees(wanted | {"rules": rules(25)}, wanted)
    assert not agrees(wanted | {"rules": [*rules(5), rules(5)[-1]]}, wanted)
    assert not agrees(wanted | {"hostnames": ["else.example"]}, wanted)
    added = [rule | {"filters": [{"type": "RequestMirror"}]} for rule in rules(5)]
    assert not agrees(wanted | {"rules": added}, wanted)
