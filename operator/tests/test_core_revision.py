from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from world_builders import basic_spec

from rampway_operator.core.parse import parse
from rampway_operator.core.revision import plan_digest, revision_hash, run_digest
from rampway_operator.core.spec import AnalysisStep, Spec

ENGINE: dict[str, Any] = {
    "image": "registry.example/llm:1",
    "args": ["--model", "/m"],
    "env": [{"name": "A", "value": "1"}],
    "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "4"}},
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "m"}}],
    "tolerations": [{"key": "gpu"}],
}


def hashed(engine: dict[str, Any], **spec: Any) -> str:
    return revision_hash({"metadata": {"name": "x"}, "spec": {"engine": engine, **spec}})


def with_changes(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(ENGINE) | changes


def test_given_an_engine_when_hashed_then_it_is_ten_hex_digits_that_never_change() -> None:
    """A golden value: a change of it would roll every workload at the operator's upgrade."""
    assert hashed(ENGINE) == "910d2ff911"


def test_given_other_key_order_when_hashed_then_the_hash_is_the_same() -> None:
    assert hashed(dict(reversed(ENGINE.items()))) == hashed(ENGINE)


@pytest.mark.parametrize(
    "defaults",
    [
        {"type": "Rampway", "port": 8000, "metricsPath": "/metrics", "sharedMemory": "1Gi"},
        {"health": {"readiness": "/readyz", "liveness": "/livez", "startupTimeout": "20m"}},
        {"health": {}, "command": [], "podLabels": {}, "affinity": {}, "runtimeClassName": ""},
        {"terminationGracePeriodSeconds": 120, "imagePullSecrets": [], "volumeMounts": []},
        {
            "volumes": [
                {"name": "models", "persistentVolumeClaim": {"claimName": "m", "readOnly": True}}
            ]
        },
        {"tolerations": [{"key": "gpu", "operator": "Equal", "effect": "", "value": ""}]},
        {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": 4}, "requests": {}}},
        {"env": [{"value": "1", "name": "A"}]},
    ],
)
def test_given_defaults_written_out_when_hashed_then_the_hash_is_the_same(
    defaults: dict[str, Any],
) -> None:
    assert hashed(with_changes(**defaults)) == hashed(ENGINE)


@pytest.mark.parametrize(
    "change",
    [
        {"image": "registry.example/llm:2"},
        {"args": ["/m", "--model"]},
        {"args": ["--model", "/m", ""]},
        {"type": "VLLM"},
        {"port": 8001},
        {"metricsPort": 8000},
        {"env": [{"name": "A", "value": "2"}]},
        {"podLabels": {"team": ""}},
        {"nodeSelector": {"type": "Rampway"}},
        {"volumes": [{"name": "models", "emptyDir": {}}]},
        {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "z", "labelSelector": {}}
                    ]
                }
            }
        },
        {"terminationGracePeriodSeconds": 0},
        {"health": {"readiness": "/ready"}},
    ],
)
def test_given_anything_that_a_pod_sees_when_changed_then_the_hash_changes(
    change: dict[str, Any],
) -> None:
    assert hashed(with_changes(**change)) != hashed(ENGINE)


def test_given_what_no_pod_sees_when_changed_then_the_hash_stays() -> None:
    others = {
        "replicas": 9,
        "paused": True,
        "strategy": {"canary": {"bake": "1h"}},
        "preflight": {"requirements": {"triton": ">=9"}},
        "analysis": {"interval": "1m"},
    }
    assert hashed(ENGINE, **others) == hashed(ENGINE)


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": {"engine": "x"}}, {"spec": []}])
def test_given_no_engine_when_hashed_then_nothing_raises(raw: dict[str, Any]) -> None:
    assert len(revision_hash(raw)) == 10


def parsed(**changes: Any) -> Spec:
    return parse({"metadata": {"name": "x"}, "spec": basic_spec(**changes)})


def test_given_replicas_paused_or_engine_when_changed_then_the_plan_is_the_same() -> None:
    plan = plan_digest(parsed())
    assert plan == plan_digest(parsed(replicas=9, paused=True, engine={"image": "other"}))
    assert plan != plan_digest(parsed(preflight={"requirements": {"triton": ">=3"}}))


def test_given_steps_or_objectives_when_changed_then_only_their_half_of_the_run_changes() -> None:
    spec = parsed()
    steps, objectives = run_digest(spec).split(".")
    other = replace(spec, canary=replace(spec.canary, steps=(*spec.canary.steps, AnalysisStep())))
    assert run_digest(other).split(".")[0] != steps
    assert run_digest(other).split(".")[1] == objectives
    fewer = replace(spec, analysis=replace(spec.analysis, objectives=spec.analysis.objectives[:1]))
    assert run_digest(fewer).split(".") != [steps, objectives]
    assert run_digest(fewer).split(".")[0] == steps
