"""Requirements are understood exactly, and every fault of a document is named with its place and remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from crd_builders import FULL, SPEC_SCHEMA

from rampway_check_env.findings import Fault
from rampway_check_env.requirements import (
    UNLIMITED,
    InvalidRequirements,
    Requirements,
    parse_requirements,
)
from rampway_check_env.units import format_bytes, parse_duration, parse_quantity
from rampway_check_env.versions import highest, parse_range, parse_version

RANGES = [
    (">=3.4.30", "3.4.30", True),
    (">=3.4.30", "3.4.9", False),
    (">=3.4.30", "3.5", True),
    (">=3.4", "3.4.0", True),
    ("==3.4", "3.4.0", True),
    (">3.4", "3.4.0", False),
    (">=3.4,<4", "3.9.1", True),
    (">=3.4,<4", "4.0", False),
    (" >= 3.4 , != 3.5 ", "3.5.0", False),
    ("<=550.54.14", "550.54.14", True),
    (">=2.10", "2.10.0+cu128", True),
    (">=2.10", "2.10.0rc1", False),
    (">=2.10", "2.10.0.dev20260101", False),
    (">=2.10", "2.11.0a0+git1", True),
    (">=2.10", "2.10.0.post1", True),
    (">=2.9", "2.10", True),
]


@pytest.mark.parametrize(("text", "version", "allowed"), RANGES)
def test_given_a_range_and_a_version_then_it_is_allowed_or_not(
    text: str, version: str, allowed: bool
) -> None:
    found, parsed = parse_range(text), parse_version(version)
    assert found is not None
    assert parsed is not None

    assert found.allows(parsed) is allowed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3.4",
        "~=3.4",
        ">=",
        ">=3.x",
        ">=3.4,",
        "=>3",
        ">= 3 4",
        ">=3.4 <4",
        ">=1.2.3.4.5.6",
        "latest",
    ],
)
def test_given_what_is_no_range_then_it_is_refused(text: str) -> None:
    assert parse_range(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8Gi", 8 << 30),
        ("1.5Gi", 3 << 29),
        ("500M", 500_000_000),
        ("1e3", 1000),
        ("0", 0),
        ("100m", 1),
        (".5Ki", 512),
    ],
)
def test_given_a_quantity_then_it_is_bytes(text: str, value: int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "-1", "8GB", "Gi", "1 Gi", "1e", "0x10", "٣"])
def test_given_what_is_no_quantity_then_it_is_refused(text: str) -> None:
    assert parse_quantity(text) is None


def test_given_durations_then_they_are_seconds() -> None:
    assert parse_duration("1h30m") == 5400
    assert parse_duration("250ms") == 0.25
    assert [parse_duration(text) for text in ("", "5", "5d", "-5s", "5 s")] == [None] * 5


def test_given_bytes_then_they_are_shown_in_the_largest_fitting_unit() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536 << 20, 60 << 30)] == [
        "0",
        "1023",
        "1Ki",
        "1.5Gi",
        "60Gi",
    ]


def test_given_versions_that_cannot_be_read_then_the_highest_of_the_others_counts() -> None:
    assert str(highest(["3.4.9", "3.4.30", "TM_1", "x"])) == "3.4.30"
    assert highest(["", "x"]) is None


def test_given_everything_the_crd_allows_then_it_is_understood() -> None:
    wanted = parse_requirements(json.dumps(FULL["preflight"]["requirements"]))

    assert str(wanted.glibcxx) == ">=3.4.30"
    assert wanted.gpu is not None
    assert (wanted.gpu.count, wanted.gpu.free_memory) == (1, 60 << 30)
    assert (wanted.shm, wanted.memlock, wanted.open_files) == (1 << 30, UNLIMITED, 1024)
    assert wanted.custom[0].fault is Fault.BAD_NODE
    assert wanted.custom[0].timeout == 5


def test_given_the_crd_then_both_know_the_same_names_and_defaults() -> None:
    schema = SPEC_SCHEMA["properties"]["preflight"]["properties"]["requirements"]["properties"]
    with pytest.raises(InvalidRequirements) as refusal:
        parse_requirements('{"?": 1}')
    listed = str(refusal.value).rpartition("need one of ")[2].split(", ")
    custom = schema["custom"]["items"]["properties"]

    assert sorted(schema) == listed
    [default] = parse_requirements('{"custom": [{"name": "x", "command": ["true"]}]}').custom
    assert parse_duration(custom["timeout"]["default"]) == default.timeout
    assert custom["class"]["default"] == default.fault.value
    assert parse_requirements('{"prefixCache": {}}').prefix_cache == "rust"


def test_given_nothing_then_nothing_is_required() -> None:
    assert parse_requirements("") == parse_requirements("{}") == Requirements()


BAD: list[tuple[Any, str]] = [
    ([], "requirements: got [], need an object"),
    ({"glibxx": ">=3"}, "requirements.glibxx: unknown name (did you mean glibcxx?), need one of"),
    ({"glibcxx": "3.4.30"}, 'requirements.glibcxx: got "3.4.30", need one or more of'),
    ({"glibcxx": 3.4}, "requirements.glibcxx: got 3.4, need"),
    ({"triton": None}, "requirements.triton: got null"),
    ({"tritonCompile": "yes"}, 'requirements.tritonCompile: got "yes", need true or false'),
    ({"gpu": 1}, "requirements.gpu: got 1, need an object"),
    (
        {"gpu": {"count": True}},
        "requirements.gpu.count: got true, need a whole number from 0 to 64",
    ),
    ({"gpu": {"count": 65}}, "requirements.gpu.count: got 65"),
    ({"gpu": {"memory": "1Gi"}}, "requirements.gpu.memory: unknown name"),
    ({"gpu": {"computeCapability": "9.0"}}, 'computeCapability: got "9.0", need a list'),
    (
        {"gpu": {"computeCapability": ["sm_90"]}},
        'computeCapability[0]: got "sm_90", need a compute',
    ),
    ({"gpu": {"freeMemory": "60GB"}}, 'requirements.gpu.freeMemory: got "60GB", need a quantity'),
    ({"prefixCache": {"backend": "python"}}, 'backend: got "python", need one of rust'),
    ({"shm": -1}, "requirements.shm: got -1, need a quantity"),
    ({"memlock": "none"}, 'requirements.memlock: got "none"'),
    ({"openFiles": "1024"}, 'requirements.openFiles: got "1024", need a whole number'),
    (
        {"disk": [{"path": "models", "free": "1Gi"}]},
        'disk[0].path: got "models", need an absolute path',
    ),
    ({"disk": [{"path": "/models"}]}, "requirements.disk[0].free: missing"),
    ({"disk": {"path": "/"}}, 'requirements.disk: got {"path": "/"}, need a list'),
    ({"libraries": [""]}, 'requirements.libraries[0]: got "", need a text that is not empty'),
    ({"custom": [{"name": "x"}]}, "requirements.custom[0].command: missing"),
    ({"custom": [{"name": "x", "command": []}]}, "command: got an empty list, need a program"),
    (
        {"custom": [{"name": "x", "command": ["a"], "timeout": "0s"}]},
        'timeout: got "0s", need a duration',
    ),
    (
        {"custom": [{"name": "x", "command": ["a"], "class": "Bad"}]},
        'class: got "Bad", need one of Bad',
    ),
]


@pytest.mark.parametrize(("raw", "message"), BAD)
def test_given_a_fault_then_it_is_named_with_its_place_and_what_is_needed(
    raw: Any, message: str
) -> None:
    with pytest.raises(InvalidRequirements) as refusal:
        parse_requirements(json.dumps(raw))

    assert message in str(refusal.value)


def test_given_many_faults_then_all_are_reported_at_once() -> None:
    raw = {"glibcxx": "x", "gpu": {"count": -1, "freeMemory": "y"}, "disk": [{}], "nope": 1}

    with pytest.raises(InvalidRequirements) as refusal:
        parse_requirements(json.dumps(raw))

    assert len(refusal.value.faults) == 6


@pytest.mark.parametrize("text", ["{", "nul", "[" * 100_000, '{"a": NaN'])
def test_given_what_is_no_json_then_the_error_says_so(text: str) -> None:
    with pytest.raises(InvalidRequirements, match="not JSON"):
        parse_requirements(text)
