from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world_builders import basic_spec, world

from rampway_operator.core.observed import Observed
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import (
    Command,
    Decision,
    EndReason,
    Evidence,
    FailedRevision,
    HistoryEntry,
    Phase,
    Revision,
    Rollout,
    State,
    Sums,
    Verdict,
    VerdictRecord,
)
from rampway_operator.core.status import (
    MAX_BYTES,
    invalid_status,
    state_from_status,
    status_from_state,
)
from rampway_operator.core.status_text import instant, parse_instant, short

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPEC: Spec = parse({"metadata": {"name": "chat"}, "spec": basic_spec()})

words = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=30)
instants = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants them naive
floats = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**9)
revisions = st.builds(Revision, hash=words, number=counts, image=words)
sums = st.builds(Sums, windows=counts)
evidence = st.builds(
    Evidence,
    objective=words,
    sums=sums,
    reference_edge=st.none() | floats,
    planning=st.lists(floats, max_size=5).map(tuple),
    alpha_spent=floats,
    looks=counts,
)
verdicts = st.builds(
    VerdictRecord,
    objective=words,
    verdict=st.sampled_from(Verdict),
    n=counts,
    n_reference=counts,
    windows=counts,
    estimate=st.none() | floats,
    low=st.none() | floats,
    high=st.none() | floats,
    margin=floats,
    alpha_spent=floats,
    candidate_value=st.none() | floats,
    reference_value=st.none() | floats,
    needed=st.none() | counts,
    message=words,
)
rollouts = st.builds(
    Rollout,
    candidate=revisions,
    attempt=st.integers(1, 99),
    started_at=instants,
    phase_started_at=instants,
    step_index=st.integers(0, 30),
    step_started_at=st.none() | instants,
    desired_weight=st.integers(0, 100),
    verified_weight=st.integers(0, 100),
    weight_note=words,
    evidence=st.lists(evidence, max_size=2).map(tuple),
    verdicts=st.lists(verdicts, max_size=2).map(tuple),
    paused_from=st.none() | st.sampled_from(Phase),
    paused_reason=words,
    outage_since=st.none() | instants,
    infrastructure_failures=st.integers(0, 9),
    avoided_nodes=st.lists(words, max_size=2).map(tuple),
    handled_pods=st.lists(words, max_size=2).map(tuple),
    warm=st.booleans(),
    end_reason=st.none() | st.sampled_from(EndReason),
    end_message=words,
    successor_pending=st.booleans(),
    plan=words,
    approval=words,
    hard=st.booleans(),
    weight_losses=st.integers(0, 9),
    warmed_until=st.none() | instants,
    stable_down_since=st.none() | instants,
)
phases = st.sampled_from([p for p in Phase if p is not Phase.IDLE])


@st.composite
def states(draw: st.DrawFn) -> State:
    rollout = draw(st.none() | rollouts)
    return State(
        phase=Phase.IDLE if rollout is None else draw(phases),
        observed_generation=draw(st.integers(0, 10**6)),
        stable=draw(st.none() | revisions),
        rollout=rollout,
        last_number=draw(counts),
        failed=draw(
            st.lists(
                st.builds(
                    FailedRevision,
                    hash=words,
                    reason=st.sampled_from(EndReason),
                    generation=counts,
                    plan=words,
                ),
                max_size=3,
            ).map(tuple)
        ),
        last_command=draw(st.none() | st.builds(Command, id=words, result=words)),
        decisions=draw(
            st.lists(
                st.builds(Decision, at=instants, reason=words, message=words, revision=words),
                max_size=4,
            ).map(tuple)
        ),
        history=draw(
            st.lists(
                st.builds(
                    HistoryEntry,
                    number=counts,
                    hash=words,
                    image=words,
                    outcome=st.sampled_from(EndReason),
                    message=words,
                    started_at=instants,
                    ended_at=instants,
                ),
                max_size=3,
            ).map(tuple)
        ),
    )


def seen(state: State, **fields: Any) -> Observed:
    base = Observed(
        name="chat",
        namespace="prod",
        uid="u",
        generation=0,
        resource_version="1",
        spec_hash="a" * 10,
        state=state,
    )
    return replace(base, **fields)


def written(state: State) -> dict[str, Any]:
    return json.loads(json.dumps(status_from_state(SPEC, seen(state), state, now=NOW)))


@settings(deadline=None)
@given(states())
def test_whatever_is_remembered_reads_back_as_it_was_written(state: State) -> None:
    assert state_from_status(written(state)) == state


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(junk)
def test_given_anything_as_status_when_read_then_nothing_raises(value: Any) -> None:
    assert isinstance(state_from_status(value), State)


@settings(deadline=None)
@given(states(), st.data())
def test_given_junk_anywhere_in_status_when_read_then_nothing_raises(
    state: State, data: st.DataObject
) -> None:
    status: Any = written(state)
    target: Any = status
    while isinstance(target, dict | list) and target:
        key = data.draw(
            st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target)))
        )
        if not isinstance(target[key], dict | list) or not target[key] or data.draw(st.booleans()):
            target[key] = data.draw(junk)
            break
        target = target[key]
    found = state_from_status(status)
    assert (found.rollout is None) is (found.phase is Phase.IDLE)


def test_given_half_a_rollout_when_read_then_there_is_none_and_nothing_can_advance() -> None:
    assert state_from_status({"phase": "Baking"}) == State()
    assert state_from_status({"phase": "Idle", "rollout": {"startedAt": instant(NOW)}}) == State()


def _large() -> State:
    long = "x" * 5000
    sums_ = Sums(*(123456, *(1.234567890123456e15 for _ in range(len(Sums.__slots__) - 1))))
    full = [
        Evidence(
            objective=f"objective-{i}",
            sums=sums_,
            step_sums=sums_,
            planning=tuple(float(n) for n in range(80)) if i < 2 else (),
        )
        for i in range(16)
    ]
    record = VerdictRecord("o", Verdict.PASS, 1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 1, long)
    rollout = Rollout(
        candidate=Revision("a" * 10, 2, "i" * 500),
        attempt=1,
        started_at=NOW,
        phase_started_at=NOW,
        evidence=tuple(full),
        verdicts=tuple(replace(record, objective=f"objective-{i}") for i in range(16)),
        end_message=long,
    )
    entry = HistoryEntry(1, "h", "i" * 500, EndReason.PROMOTED, long, NOW, NOW)
    return State(
        phase=Phase.ANALYZING,
        observed_generation=1,
        stable=Revision("b" * 10, 1, "i" * 500),
        rollout=rollout,
        decisions=tuple(Decision(NOW, "Reason", long, "a" * 10) for _ in range(20)),
        history=tuple(entry for _ in range(20)),
    )


def test_given_far_too_much_when_written_then_status_is_small_and_the_evidence_is_whole() -> None:
    state = _large()
    status = written(state)
    assert len(json.dumps(status, separators=(",", ":")).encode()) < MAX_BYTES
    rollout = state_from_status(status).rollout
    assert rollout is not None
    assert state.rollout is not None
    assert len(rollout.evidence) == 16
    for found, expected in zip(rollout.evidence, state.rollout.evidence, strict=True):
        assert found.sums.windows == expected.sums.windows
        assert found.sums.nc == pytest.approx(expected.sums.nc, rel=1e-9)


def test_given_an_unchanged_condition_when_written_again_then_its_time_stays() -> None:
    state = State(observed_generation=1)
    first = status_from_state(SPEC, seen(state), state, now=NOW)
    later = NOW + timedelta(hours=1)
    again = status_from_state(SPEC, seen(state), state, now=later, previous=first)
    assert again == first
    stable = replace(state, stable=Revision("a" * 10, 1, "x"))
    changed = status_from_state(SPEC, seen(stable), stable, now=later, previous=first)
    times = {c["type"]: c["lastTransitionTime"] for c in changed["conditions"]}
    assert times["RolloutComplete"] == instant(later)
    assert times["SpecValid"] == instant(NOW)


def test_given_an_invalid_spec_when_reported_then_all_faults_are_told_and_nothing_is_forgotten() -> (
    None
):
    w = world().deploy()
    before = w.state
    w.edit(lambda spec: spec["strategy"]["canary"].update(maxSurge="lots", bake="soon"))
    w.tick()
    spec_valid = w.condition("SpecValid")
    assert (spec_valid["status"], spec_valid["reason"]) == ("False", "InvalidSpec")
    assert "spec.strategy.canary.maxSurge" in spec_valid["message"]
    assert "spec.strategy.canary.bake" in spec_valid["message"]
    assert w.condition("Stalled")["status"] == "True"
    assert w.condition("Ready")["status"] == "True", "what serves keeps serving"
    assert w.status["observedGeneration"] == w.generation
    assert w.state.stable == before.stable
    writes = w.writes
    w.tick()
    assert w.writes == writes
    w.edit(lambda spec: spec["strategy"]["canary"].update(maxSurge=1, bake="10s"))
    w.until_settled()
    assert w.condition("SpecValid")["status"] == "True"


def test_given_a_first_object_that_is_invalid_when_reported_then_it_is_a_whole_status() -> None:
    status = invalid_status(
        ["spec.engine: is missing"], generation=1, now=NOW, previous={"observedGeneration": -1}
    )
    assert status["observedGeneration"] == 1
    assert {c["type"] for c in status["conditions"]} >= {
        "Ready",
        "SpecValid",
        "Stalled",
        "Reconciling",
    }


def test_given_a_generation_when_an_older_one_is_seen_then_the_observed_one_never_falls() -> None:
    state = State(observed_generation=7)
    assert (
        status_from_state(SPEC, seen(state, generation=5), state, now=NOW)["observedGeneration"]
        == 7
    )
    kept = invalid_status(["x"], generation=3, now=NOW, previous={"observedGeneration": 9})
    assert kept["observedGeneration"] == 9


@given(st.text(max_size=600))
def test_any_text_becomes_one_short_printable_line(text: str) -> None:
    found = short(text, 100)
    assert len(found) <= 100
    assert found.isprintable()
    assert short(found, 100) == found


@given(instants)
def test_any_instant_reads_back(value: datetime) -> None:
    assert parse_instant(instant(value)) == value


def test_given_every_printer_column_when_a_rollout_runs_then_it_has_a_value() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    rollout = w.status["rollout"]
    assert rollout["step"]["display"] == "3/8 analysis"
    assert (rollout["weight"]["verified"], rollout["weight"]["note"]) == (
        20,
        "asked 5 %, 1 of 5 pods = 20 %",
    )
    assert (w.status["stableRevision"]["number"], w.status["candidateRevision"]["number"]) == (1, 2)
    assert w.status["readyReplicas"] == 3


def test_given_faults_when_raised_then_the_error_says_them_all() -> None:
    error = InvalidSpec(("a: b", "c: d"))
    assert str(error) == "a: b; c: d"
