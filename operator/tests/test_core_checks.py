from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampway_operator.core.check_report import (
    CheckClass,
    classify,
    describe,
    digest,
    reports_by_node,
    unchecked,
)
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


@pytest.mark.parametrize(
    "message",
    [
        'exec: "python3": executable file not found in $PATH: unknown',
        "executable file `python3` not found in $PATH: No such file or directory",
    ],
)
def test_given_an_image_without_python3_when_described_then_the_revision_is_to_blame_and_the_remedy_named(
    message: str,
) -> None:
    """What containerd and CRI-O say; a retry on another node would find none either."""
    assert classify(128, message) is CheckClass.BAD_REVISION
    assert "no python3 to run check_env; set preflight.image" in describe(
        POD, InitCheck(CheckState.FAILED, 128, message)
    )


def ended(name: str, node: str, second: int, message: str, code: int = 0) -> Pod:
    state = CheckState.FAILED if code else CheckState.PASSED
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return replace(POD, name=name, node=node, check=InitCheck(state, code, message, at))


def test_given_pods_when_reported_by_node_then_the_last_ended_check_of_each_node_is_kept() -> None:
    good = json.dumps({"v": 1, "class": "Pass", "failed": [], "unchecked": ["torch", "glibc"]})
    pods = [
        ended("old", "n1", 1, "{}", 11),
        ended("new", "n1", 2, good),
        ended("odd", "n2", 1, "Killed", 137),
        ended("silent", "n3", 1, ""),
        replace(POD, node="n4", check=InitCheck(CheckState.RUNNING)),
        replace(POD, node="n5"),
    ]

    reports = reports_by_node(pods)

    assert set(reports) == {"n1", "n2"}
    first = json.loads(reports["n1"])
    assert (first["pod"], first["exitCode"], first["report"]["class"]) == ("new", 0, "Pass")
    assert json.loads(reports["n2"])["report"] == "Killed"
    assert unchecked(pods) == ("glibc", "torch")
    assert digest(reports) == digest(reports_by_node(reversed(pods))) != digest({})


def test_given_more_nodes_than_a_config_map_holds_when_reported_then_those_that_failed_are_kept() -> (
    None
):
    pods = [ended(f"p{n}", f"n{n:03}", 1, "x" * 4096, 11 if n >= 195 else 0) for n in range(200)]

    reports = reports_by_node(pods)

    assert len(reports) == 150
    assert {f"n{n}" for n in range(195, 200)} <= set(reports)
    assert sum(map(len, reports.values())) < 1 << 20


@given(st.text())
def test_given_any_message_when_reported_then_it_is_json_and_nothing_fails(message: str) -> None:
    pods = [ended("p", "n", 1, message, 12)]

    for text in reports_by_node(pods).values():
        assert json.loads(text)["pod"] == "p"
    unchecked(pods)


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
