from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampway_operator.core.checks import CheckClass, classify, describe
from rampway_operator.core.observed import CheckState, InitCheck, Pod, Pool
from rampway_operator.core.phases import MOVES, is_legal
from rampway_operator.core.state import Phase

POD = Pod(
    name="chat-a-1",
    uid="u",
    hash="a" * 10,
    pool=Pool.MAIN,
    resource_version="1",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    node="gpu-17",
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (10, CheckClass.BAD_REVISION),
        (2, CheckClass.BAD_REVISION),
        (11, CheckClass.BAD_NODE),
        (12, CheckClass.INFRASTRUCTURE),
        (137, CheckClass.INFRASTRUCTURE),
        (128, CheckClass.INFRASTRUCTURE),
        (None, CheckClass.INFRASTRUCTURE),
    ],
)
def test_given_an_exit_code_when_classified_then_the_contract_says_who_is_to_blame(
    code: int | None, expected: CheckClass
) -> None:
    assert classify(code) is expected


def test_given_a_report_when_described_then_it_names_pod_node_values_and_remedy() -> None:
    finding = {
        "check": "cuda-driver",
        "found": "535.161",
        "required": ">=550",
        "remedy": "update the driver",
    }
    message = json.dumps({"v": 1, "class": "BadNode", "failed": [finding], "took_ms": 3})
    check = InitCheck(CheckState.FAILED, 11, message)
    assert describe(POD, check) == (
        "pod chat-a-1 on node gpu-17: cuda-driver; found 535.161; need >=550; update the driver"
    )


@given(st.text() | st.sampled_from(["[]", "{}", '{"failed": 3}', '{"failed": [1]}', "null"]))
def test_given_any_other_message_when_described_then_it_is_shown_with_the_exit_code(
    message: str,
) -> None:
    assert "exit code 137" in describe(POD, InitCheck(CheckState.FAILED, 137, message))


def test_given_the_table_of_phases_when_read_then_every_trial_can_be_rolled_back_and_ends_idle() -> (
    None
):
    """T24."""
    on_trial = set(Phase) - {Phase.IDLE, Phase.DRAINING, Phase.ROLLING_BACK}
    assert all(Phase.ROLLING_BACK in MOVES[phase] for phase in on_trial)
    assert set(MOVES[Phase.ROLLING_BACK]) == set(MOVES[Phase.DRAINING]) == {Phase.IDLE}
    assert set(MOVES) == set(Phase)
    assert all(is_legal(phase, phase) for phase in Phase)
    assert not is_legal(Phase.PREFLIGHT, Phase.BAKING)


def test_given_the_table_of_phases_when_read_then_only_verified_traffic_leads_to_a_promotion() -> (
    None
):
    sources = {phase for phase in Phase if Phase.DRAINING in MOVES[phase]}
    assert sources == {Phase.SHIFTING, Phase.BAKING, Phase.PAUSED}
