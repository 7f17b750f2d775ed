"""The schema and the typed spec say the same: every field, every default, both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml
from crd_builders import (
    BLUE_GREEN,
    EXAMPLES,
    FULL,
    HIT_RATE,
    SPEC_SCHEMA,
    closed,
    full_spec,
    resource,
    schema_paths,
    value_paths,
    with_defaults,
    without,
)

from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.spec import BlueGreen, Engine, Spec

STATEMENTS = {
    ("preflight", "onFailure", "badRevision"),
    ("configRefs", "[]", "kind"),
    ("traffic", "drain", "mode"),
    ("traffic", "provider"),
    ("traffic", "provider", "service"),
    ("analysis", "source"),
    ("analysis", "source", "direct"),
    ("analysis", "outage", "policy"),
}
"""Fields with a single possible value: they state what happens and choose nothing."""

MINIMAL: dict[str, Any] = {"engine": {"image": "registry.example/llm:1"}}
LEAVES = [path for path, inner in schema_paths(SPEC_SCHEMA) if "properties" not in inner]


def hit_rate_spec() -> dict[str, Any]:
    return {
        **MINIMAL,
        "analysis": {"source": {"direct": {}}, "objectives": [HIT_RATE]},
        "traffic": {"provider": {"service": {}}},
    }


def blue_green_spec() -> dict[str, Any]:
    return {**full_spec(), "strategy": {"blueGreen": dict(BLUE_GREEN)}}


def spec_with(path: tuple[str, ...]) -> dict[str, Any]:
    """Return a whole spec that uses the field."""
    specs = (full_spec(), blue_green_spec(), hit_rate_spec())
    return next(spec for spec in specs if path in set(value_paths(spec)))


def parsed(spec: dict[str, Any]) -> Spec | None:
    """Return the typed spec; None where it is refused."""
    try:
        return parse(resource(spec))
    except InvalidSpec:
        return None


def test_given_the_full_spec_then_it_uses_every_field_of_the_schema() -> None:
    used = {
        path for spec in (FULL, blue_green_spec(), hit_rate_spec()) for path in value_paths(spec)
    }

    assert {path for path, _ in schema_paths(SPEC_SCHEMA)} - used == set()


@pytest.mark.parametrize(
    "spec",
    [FULL, blue_green_spec(), MINIMAL, hit_rate_spec()],
    ids=["full", "blue-green", "minimal", "hit rate"],
)
def test_given_a_good_spec_then_schema_and_parser_accept_it(spec: dict[str, Any]) -> None:
    jsonschema.validate(spec, closed(SPEC_SCHEMA))
    jsonschema.validate(with_defaults(SPEC_SCHEMA, spec), closed(SPEC_SCHEMA))

    assert parsed(spec) is not None


def test_given_any_field_of_the_schema_when_it_is_left_out_then_the_typed_spec_changes() -> None:
    unread = []
    for path in LEAVES:
        spec = spec_with(path)
        changed = without(spec, path)
        assert changed != spec
        if (parsed(changed) == parsed(spec)) is not (path in STATEMENTS):
            unread.append(path)

    assert unread == []


def test_given_any_field_left_out_then_the_schema_and_the_parser_have_the_same_default() -> None:
    compared, different = 0, []
    for path in LEAVES:
        spec = without(spec_with(path), path)
        stored, typed = parsed(with_defaults(SPEC_SCHEMA, spec)), parsed(spec)
        if stored is not None and typed is not None:
            compared += 1
            different += [path] if normal(stored) != normal(typed) else []

    assert different == []
    assert compared > len(LEAVES) / 2


def test_given_only_an_image_then_schema_parser_and_typed_spec_have_the_same_defaults() -> None:
    expected = Spec(engine=Engine(image="registry.example/llm:1"))

    assert parsed(MINIMAL) == expected
    assert parsed(with_defaults(SPEC_SCHEMA, MINIMAL)) == expected
    assert parsed({**MINIMAL, "strategy": {"canary": {}}}) == expected


def test_given_the_full_spec_then_no_field_of_the_typed_spec_keeps_its_default() -> None:
    default, full = Spec(engine=Engine(image="registry.example/llm:1")), parsed(FULL)

    kept = {name for name, value in fields(full) if (name, value) in set(fields(default))}

    assert kept == {".blue_green"}
    other = parsed(blue_green_spec())
    assert other is not None
    assert other.blue_green is not None
    assert not set(fields(other.blue_green)) & set(fields(BlueGreen()))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_given_an_example_then_schema_and_parser_accept_it(file: Any) -> None:
    documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    ours = [d for d in documents if d["kind"] == "InferenceDeployment"]

    assert ours
    for document in ours:
        jsonschema.validate(document["spec"], closed(SPEC_SCHEMA))
        parse(document)


def fields(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Return every scalar field of a typed spec by path, with its value as text."""
    for field in dataclasses.fields(value):
        inner, where = getattr(value, field.name), f"{path}.{field.name}"
        if dataclasses.is_dataclass(inner):
            yield from fields(inner, where)
        else:
            yield where, repr(inner)


def normal(spec: Spec | None) -> Spec | None:
    """Return the spec with Kubernetes-shaped parts freed of the defaults that Kubernetes itself has."""
    if spec is None:
        return None
    engine = dataclasses.replace(
        spec.engine, volumes=tuple(lean(v) for v in spec.engine.volumes), resources=lean(spec.engine.resources),
        tolerations=tuple(lean(t) for t in spec.engine.tolerations),
    )  # fmt: skip
    return dataclasses.replace(spec, engine=engine, preflight=lean_preflight(spec))


NATIVE = {
    "optional": False, "defaultMode": 420, "items": [], "medium": "", "readOnly": False,
    "pullPolicy": "IfNotPresent", "operator": "Equal", "effect": "", "claims": [],
}  # fmt: skip


def lean(value: Any) -> Any:
    """Return `value` without fields that have Kubernetes' own default."""
    if isinstance(value, dict):
        return {k: lean(v) for k, v in value.items() if k not in NATIVE or NATIVE[k] != v}
    return [lean(item) for item in value] if isinstance(value, list) else value


def lean_preflight(spec: Spec) -> Any:
    """Return preflight without the defaults that check_env has, too (a test of check_env holds them)."""
    native = {"timeout": "30s", "class": "BadRevision", "backend": "rust"}

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if native.get(k) != v}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return dataclasses.replace(spec.preflight, requirements=strip(spec.preflight.requirements))
