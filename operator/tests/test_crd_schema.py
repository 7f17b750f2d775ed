"""The CRD by itself: complete, described, bounded, and with room for everything the operator writes."""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from crd_builders import (
    CRD,
    CRD_FILE,
    ROOT,
    SCHEMA,
    SPEC_SCHEMA,
    STATUS_SCHEMA,
    VERSION,
    misfits,
    schema_paths,
)

from rampway_operator.core.observed import Observed
from rampway_operator.core.spec import Engine, Spec
from rampway_operator.core.state import Phase, State
from rampway_operator.core.status import MAX_BYTES, invalid_status, status_from_state

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
WORDS = {
    "type", "description", "default", "properties", "required", "items", "additionalProperties", "enum",
    "pattern", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "maxProperties", "anyOf", "x-kubernetes-int-or-string", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip
FIELDS = list(schema_paths(SCHEMA))
CONTAINERS = ({}, {"observedGeneration": -1})
"""Defaults that only open an object whose fields have defaults of their own."""


def test_given_the_file_then_it_fits_into_an_annotation_of_kubectl_apply() -> None:
    assert len(json.dumps(CRD)) < 262_144
    assert CRD_FILE.stat().st_size < 262_144


def test_given_the_chart_then_its_crd_is_this_one() -> None:
    copy = ROOT / "charts" / "rampway" / "crds" / CRD_FILE.name

    assert copy.read_bytes() == CRD_FILE.read_bytes(), "cp crds/*.yaml charts/rampway/crds/"


def test_given_the_names_then_they_are_those_of_the_design() -> None:
    names = CRD["spec"]["names"]

    assert CRD["spec"]["group"] == "rampway.dev"
    assert (names["plural"], names["shortNames"]) == ("inferencedeployments", ["infd"])
    assert names["categories"] == ["all"]
    assert VERSION["subresources"]["scale"] == {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    assert STATUS_SCHEMA["default"] == {"observedGeneration": -1}


def test_given_any_field_then_every_word_of_its_schema_is_known() -> None:
    """A comma in an unquoted description would become a stray word."""
    stray = {".".join(path): set(schema) - WORDS for path, schema in FIELDS if set(schema) - WORDS}

    assert stray == {}


def test_given_the_file_then_no_bare_word_is_a_truth_value_to_yaml_1_1() -> None:
    """Kubernetes reads YAML 1.1, where a bare n, y, on or off is a boolean, as a key too; Python's does not."""
    bare = r"(?<![\w'\"/.-])(y|n|yes|no|on|off)(?=\s*[:,\]}]|\s*$)"
    words = [
        (number, line.strip())
        for number, line in enumerate(CRD_FILE.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(
            bare, re.sub(r"'[^']*'|\"[^\"]*\"|description:.*|#.*", "", line), re.IGNORECASE
        )
        and not line.lstrip().startswith(("-", "message", "rule"))
    ]

    assert words == []


def test_given_any_field_then_it_is_described_with_its_default() -> None:
    faults = []
    for path, schema in FIELDS:
        text = schema.get("description", "")
        if path[-1] != "[]" and path != ("metadata",) and not text.endswith("."):
            faults.append(f"{path}: no description")
        if schema.get("default") not in (None, *CONTAINERS) and "Default" not in text:
            faults.append(f"{path}: does not say its default {schema['default']!r}")

    assert faults == []


def test_given_any_field_then_its_size_is_bounded() -> None:
    """The API server estimates the cost of rules from these bounds; etcd and watches pay for the rest."""
    faults = [
        path for path, schema in FIELDS if path[0] in {"spec", "status"} and not bounded(schema)
    ]
    open_numbers = [
        path
        for path, schema in FIELDS
        if path[0] == "spec" and schema.get("type") == "integer" and "minimum" not in schema
    ]

    assert faults == []
    assert open_numbers == []


def bounded(schema: dict[str, Any]) -> bool:
    """Whether strings, lists and maps have a limit."""
    if schema.get("x-kubernetes-int-or-string"):
        return "maxLength" in schema
    match schema.get("type"):
        case "string":
            return bool({"maxLength", "enum", "format"} & set(schema))
        case "array":
            return "maxItems" in schema
        case "object":
            return "additionalProperties" not in schema or "maxProperties" in schema
    return True


@pytest.mark.parametrize(
    "rule",
    [
        r
        for _, schema in [((), SCHEMA), *FIELDS]
        for r in schema.get("x-kubernetes-validations", [])
    ],
    ids=lambda rule: rule["message"][:50],
)
def test_given_a_rule_then_it_says_what_to_do(rule: dict[str, Any]) -> None:
    assert 20 < len(rule["message"]) <= 200
    assert not rule["message"].endswith(".")


def test_given_the_columns_then_they_point_to_fields_of_status() -> None:
    known = {".".join(path) for path, _ in schema_paths(STATUS_SCHEMA)}
    columns = VERSION["additionalPrinterColumns"]

    assert [c["name"] for c in columns if not c.get("priority")] == [
        "Phase", "Stable", "Candidate", "Step", "Weight", "Ready", "Env", "Age",
    ]  # fmt: skip
    assert [c["name"] for c in columns if c.get("priority")] == ["Verdict", "Cache", "Reason"]
    for column in columns:
        path = column["jsonPath"].removeprefix(".status.")
        assert path in known or path.startswith("conditions[?(@.type==") or column["name"] == "Age"


@pytest.mark.parametrize("phase", list(Phase))
def test_given_a_status_of_the_operator_then_the_schema_keeps_all_of_it(phase: Phase) -> None:
    state = dataclasses.replace(filled(State), phase=phase)
    spec = Spec(engine=Engine(image="i"))

    status = status_from_state(spec, filled(Observed), state, now=NOW, waiting_for="x")

    assert misfits(status, STATUS_SCHEMA) == []
    assert len(json.dumps(status)) <= MAX_BYTES
    assert status["rollout"]["evidence"]


def test_given_the_status_of_an_invalid_spec_then_the_schema_keeps_all_of_it() -> None:
    faults = ["spec.replicas: got 'x', need a whole number"] * 50

    status = invalid_status(faults, generation=3, now=NOW)

    assert misfits(status, STATUS_SCHEMA) == []


def test_given_a_fresh_object_then_its_status_fits_the_schema() -> None:
    status = status_from_state(
        Spec(engine=Engine(image="i")), filled(Observed), State(), now=NOW, waiting_for=""
    )

    assert misfits(status, STATUS_SCHEMA) == []


def test_given_spec_and_status_then_objects_are_never_open() -> None:
    """An unknown field must be an error at the user's desk, not silently kept."""
    for path, schema in [*schema_paths(SPEC_SCHEMA), *schema_paths(STATUS_SCHEMA)]:
        assert "x-kubernetes-preserve-unknown-fields" not in schema, path


def filled(kind: Any) -> Any:
    """Return a value of a type with something in every field, however deep."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{f.name: filled(hints[f.name]) for f in dataclasses.fields(kind)})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return filled(next(a for a in arguments if a is not type(None)))
    if origin is tuple:
        return (filled(arguments[0]),) if arguments[-1] is ... else tuple(map(filled, arguments))
    if origin is frozenset:
        return frozenset({filled(arguments[0])})
    if origin is dict:
        return {filled(arguments[0]): filled(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    samples = {
        str: "a",
        int: 1,
        float: 0.1234567890123,
        bool: True,
        datetime: NOW,
        timedelta: timedelta(seconds=1),
        Any: "a",
    }
    return samples[kind]
