from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampway_operator.core.commands import Verb, judge, parse_command
from rampway_operator.core.state import (
    EndReason,
    FailedRevision,
    Phase,
    Revision,
    Rollout,
    State,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HASH, OTHER = "a" * 10, "b" * 10
ROLLOUT = Rollout(
    candidate=Revision(HASH, 2, "x"),
    attempt=1,
    started_at=NOW,
    phase_started_at=NOW,
    step_index=3,
    verified_weight=20,
)


def state(phase: Phase) -> State:
    return State(phase=phase, stable=Revision(OTHER, 1, "y"), rollout=ROLLOUT)


@given(st.text())
def test_given_any_text_when_parsed_then_it_is_a_command_or_none(text: str) -> None:
    assert parse_command(text) is None
    assert judge(text, state(Phase.PAUSED), HASH).result.startswith("Refused")


@pytest.mark.parametrize("verb", list(Verb))
def test_given_a_well_formed_command_when_parsed_then_its_parts_are_known(verb: Verb) -> None:
    found = parse_command(f"{verb.value}/{HASH}/3#n-1")
    assert found is not None
    assert (found.verb, found.hash, found.step_index) == (verb, HASH, 3)


@pytest.mark.parametrize(
    "text",
    [
        "promote",
        f"promote/{HASH}/x#1",
        f"stop/{HASH}/1#1",
        f"abort/{HASH}/1",
        f"abort/{HASH}/1#" + "n" * 65,
    ],
)
def test_given_a_malformed_command_when_judged_then_the_form_is_told(text: str) -> None:
    assert "need <promote" in judge(text, state(Phase.PAUSED), HASH).result


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.IDLE, Phase.DRAINING)])
def test_given_any_phase_of_a_trial_when_aborted_then_it_is_legal_at_any_step(phase: Phase) -> None:
    assert judge(f"abort/{HASH}/99#1", state(phase), HASH).applied


def test_given_another_hash_or_step_when_promoted_then_it_is_stale() -> None:
    assert judge(f"promote/{OTHER}/3#1", state(Phase.PAUSED), HASH).result.startswith("Stale")
    assert judge(f"promote/{HASH}/2#1", state(Phase.PAUSED), HASH).result.startswith("Stale")
    assert judge(f"abort/{OTHER}/3#1", state(Phase.PAUSED), HASH).result.startswith("Stale")
    assert judge(f"promote/{HASH}/3#1", state(Phase.PAUSED), HASH).applied


def test_given_no_rollout_when_commanded_then_it_is_refused_with_a_remedy() -> None:
    for phase in (Phase.IDLE, Phase.DRAINING):
        rollout = None if phase is Phase.IDLE else ROLLOUT
        found = judge(f"abort/{HASH}/0#1", replace(state(phase), rollout=rollout), HASH)
        assert found.result.startswith("Refused")
        assert "edit the spec" in found.result


def test_given_unchecked_pods_when_promoted_then_no_command_passes_over_the_check() -> None:
    fresh = replace(state(Phase.PREFLIGHT), rollout=replace(ROLLOUT, verified_weight=0))
    assert not judge(f"promote/{HASH}/3#1", fresh, HASH).applied
    assert not judge(f"promote-full/{HASH}/3#1", fresh, HASH).applied
    held = replace(
        fresh,
        phase=Phase.PAUSED,
        rollout=replace(ROLLOUT, verified_weight=0, paused_from=Phase.PREFLIGHT),
    )
    assert not judge(f"promote-full/{HASH}/3#1", held, HASH).applied


def test_given_a_failed_revision_when_retried_then_only_that_one_and_only_when_idle() -> None:
    failed = (FailedRevision(HASH, EndReason.BAD_REVISION, 1),)
    idle = State(failed=failed)
    assert judge(f"retry/{HASH}/0#1", idle, HASH).applied
    assert judge(f"retry/{HASH}/0#1", idle, OTHER).result.startswith("Stale")
    assert judge(f"retry/{OTHER}/0#1", idle, OTHER).result.startswith("Refused")
    assert judge(
        f"retry/{HASH}/0#1", replace(state(Phase.PAUSED), failed=failed), HASH
    ).result.startswith("Refused")
