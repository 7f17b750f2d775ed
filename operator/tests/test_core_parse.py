from __future__ import annotations

import copy
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world_builders import basic_spec

from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.spec import (
    Engine,
    Metric,
    PauseStep,
    Require,
    SetWeightStep,
    Spec,
)


def raw(change: dict[str, Any] | None = None, name: str = "chat") -> dict[str, Any]:
    spec = basic_spec()
    for path, value in (change or {}).items():
        *parents, last = path.split(".")
        target = spec
        for key in parents:
            target = target.setdefault(key, {})
        target[last] = value
    return {"metadata": {"name": name, "namespace": "prod"}, "spec": spec}


def faults(change: dict[str, Any]) -> tuple[str, ...]:
    with pytest.raises(InvalidSpec) as caught:
        parse(raw(change))
    return caught.value.faults


def objective(**fields: Any) -> dict[str, Any]:
    base = {
        "name": "p99",
        "metric": "TTFT",
        "quantile": "0.99",
        "comparison": {"against": "Baseline", "maxRegression": "0.25"},
    }
    return {key: value for key, value in (base | fields).items() if value is not None}


@pytest.mark.parametrize("strategy", [None, {"canary": {}}])
def test_given_nothing_but_an_image_when_parsed_then_every_block_has_its_default(
    strategy: Any,
) -> None:
    spec: dict[str, Any] = {"engine": {"image": "x"}}
    if strategy is not None:
        spec["strategy"] = strategy
    assert parse({"metadata": {"name": "chat"}, "spec": spec}) == Spec(engine=Engine(image="x"))


def test_given_all_kinds_of_values_when_parsed_then_they_are_typed() -> None:
    spec = parse(
        raw(
            {
                "strategy.canary.steps": [
                    {"setWeight": 10},
                    {"pause": {"duration": "1h30m"}},
                    {"pause": {}},
                ],
                "strategy.canary.maxSurge": 2,
                "analysis.objectives": [
                    objective(),
                    objective(
                        name="e2e", metric="E2ELatency", comparison=None, slo={"max": "2500ms"}
                    ),
                    {"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.005"}},
                ],
            }
        )
    )
    assert spec.canary.steps == (
        SetWeightStep(10),
        PauseStep(timedelta(minutes=90)),
        PauseStep(None),
    )
    first, second, third = spec.analysis.objectives
    assert (first.require, first.quantile) == (Require.NOT_FAIL, Decimal("0.99"))
    assert (second.slo_max, second.require) == (Decimal("2.5"), Require.PASS)
    assert (third.metric, third.slo_max) == (Metric.ERROR_RATE, Decimal("0.005"))


def test_given_many_faults_when_parsed_then_all_are_told_at_once_with_their_paths() -> None:
    found = faults(
        {
            "replicas": -1,
            "replica": 3,
            "progressDeadline": "soon",
            "engine.port": 0,
            "engine.env": [{"name": "LD_PRELOAD", "value": "x"}],
            "strategy.canary.steps": [{"setWeight": 1}, {}, {"setWeight": 120}],
        }
    )
    paths = [fault.split(":")[0] for fault in found]
    assert sorted(paths) == [
        "spec",
        "spec.engine.env[0].name",
        "spec.engine.port",
        "spec.progressDeadline",
        "spec.replicas",
        "spec.strategy.canary.steps[1]",
        "spec.strategy.canary.steps[2].setWeight",
    ]
    assert "spec.strategy.canary.steps[2].setWeight: 120 is above 100" in found


CASES: list[tuple[dict[str, Any], str]] = [
    ({"engine.env": [{"name": n, "value": "1"}]}, "spec.engine.env[0].name: ")
    for n in (
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "NVIDIA_VISIBLE_DEVICES",
        "RAMPWAY_REVISION",
        "1A",
        "",
    )
]
CASES += [
    ({"engine.env": [{"name": "A"}, {"name": "A"}]}, "given twice"),
    ({"engine.env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}, "value and valueFrom"),
    ({"engine.env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.secret"}}}]}, "fieldPath"),
    ({"engine.env": [{"name": "A", "valueFrom": {}}]}, "exactly one of"),
    ({"engine.podLabels": {"rampway.dev/name": "x"}}, "belongs to the operator"),
    ({"engine.podLabels": {"a b": "x"}}, "not a label key"),
    ({"engine.podAnnotations": {"controller.kubernetes.io/pod-deletion-cost": "9"}}, "belongs to the operator"),
    ({"engine.volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "unknown field 'hostPath'"),
    ({"engine.volumes": [{"name": "rampway-tmp", "emptyDir": {}}]}, "reserved"),
    ({"engine.volumes": [{"name": "v"}]}, "exactly one of"),
    ({"engine.volumeMounts": [{"name": "v", "mountPath": "/m"}]}, "not a volume"),
    ({"engine.volumes": [{"name": "v", "emptyDir": {}}], "engine.volumeMounts": [{"name": "v", "mountPath": "/dev/shm"}]}, "mounted by the operator"),
    ({"engine.volumes": [{"name": "v", "emptyDir": {}}], "engine.volumeMounts": [{"name": "v", "mountPath": "/m", "subPath": "../x"}]}, "without .."),
    ({"engine.securityContext": {"privileged": True}}, "unknown field 'securityContext'"),
    ({"engine.image": ""}, "characters"),
    ({"engine.image": "a b"}, "does not match"),
    ({"engine.resources": {"limits": {"cpu": "four"}}}, "not a quantity"),
    ({"engine.resources": {"requests": {"nvidia.com/gpu": 1}}}, "extended resource needs both"),
    ({"engine.sharedMemory": "1 GB"}, "not a quantity"),
    ({"engine.type": "Ollama"}, "not one of Rampway, VLLM, SGLang, TensorRTLLM"),
    ({"engine": []}, "need an object"),
    ({"engine": None}, "spec.engine: is missing"),
    ({"paused": "yes"}, "need true or false"),
    ({"replicas": True}, "need a whole number"),
    ({"replicas": 1.5}, "need a whole number"),
    ({"strategy.canary.steps": [{"setWeight": 50}, {"setWeight": 25}]}, "weights must not fall"),
    ({"strategy.canary.steps": [{"setWeight": 100}, {"pause": {}}]}, "must be the last step"),
    ({"strategy.canary.steps": [{"analysis": {}}]}, "needs traffic"),
    ({"strategy.canary.steps": [{"setWeight": 5}, {"analysis": {"objectives": ["nope"]}}]}, "steps[1].analysis.objectives[0]: 'nope'"),
    ({"strategy.canary.steps": [{"setWeight": 75}, {"analysis": {}}]}, "hit rate cannot be compared"),
    ({"strategy.canary.steps": [{"setWeight": 5, "pause": {}}]}, "exactly one of setWeight"),
    ({"strategy.canary.steps": "all"}, "need a list"),
    ({"strategy.canary.maxSurge": 0}, "both 0"),
    ({"strategy.canary": {"maxSurge": 0, "maxUnavailable": 1}, "replicas": 1}, "would leave no pod"),
    ({"strategy.canary": {"maxSurge": 0, "maxUnavailable": "10%"}}, "10% of 4 pods is none"),
    ({"strategy.canary.maxSurge": "a lot"}, "number of pods"),
    ({"strategy.rolling": {}}, "unknown field 'rolling'"),
    ({"strategy": {}}, "has neither, need exactly one of canary and blueGreen"),
    ({"strategy": {"canary": None}}, "has neither"),
    ({"strategy.canary.baseline": {"enabled": False}}, "baseline.enabled, which is false"),
    ({"minReadySeconds": 3600, "progressDeadline": "10m"}, "no rollout could make progress"),
    ({"warmup": {"source": {"promptSet": {"configMapName": "w"}}, "budget": {"maxDuration": "2h"}}}, "longer than progressDeadline"),
    ({"warmup": {}}, "configMapName"),
    ({"analysis.interval": "2h"}, "longer than maxDuration"),
    ({"analysis.errorRates": {"falseAbort": 0.05}}, "decimal as text"),
    ({"analysis.errorRates": {"falseAbort": "0.9"}}, "not between"),
    ({"analysis.objectives": [objective(minSamples=100)]}, "fewer than three requests"),
    ({"analysis.objectives": [objective(), objective()]}, "objectives[1].name: 'p99' is given twice"),
    ({"analysis.objectives": [objective(slo={"max": "1s"})]}, "exactly one of slo and comparison"),
    ({"analysis.objectives": [objective(tail="0.9")]}, "exactly one of quantile and tail"),
    ({"analysis.objectives": [objective(quantile=None, tail="0.9", comparison=None, slo={"max": "1s"})]}, "tail: compares two arms"),
    ({"analysis.objectives": [objective(comparison={"against": "Baseline"})]}, "exactly one of maxRegression"),
    ({"analysis.objectives": [{"name": "h", "metric": "PrefixCacheHitRate", "comparison": {"against": "Stable", "maxDrop": "0.05"}}]}, "no fair reference"),
    ({"analysis.objectives": [{"name": "e", "metric": "ErrorRate", "comparison": {"against": "Stable", "maxRegression": "0.5"}}]}, "ErrorRate needs slo.max"),
    ({"analysis.objectives": [objective(blocking=False)]}, "none has blocking true"),
    ({"analysis.objectives": [objective(), objective(name="b", blocking=False)],
      "strategy.canary.steps": [{"setWeight": 5}, {"analysis": {"objectives": ["b"]}}]}, "none of its objectives"),
    ({"analysis.objectives": [{"metric": "TTFT", "tail": "0.9"}]}, "objectives[0].name: is missing"),
    ({"preflight.requirements": {"cuda": ">=12"}}, "unknown field 'cuda'"),
    ({"preflight.onFailure": {"badRevision": "Ignore"}}, "does not match"),
    ({"traffic.provider": {"gatewayAPI": {}}}, "gatewayAPI.parentRefs: is empty"),
    ({"traffic.provider": {"gatewayApi": {}}}, "unknown field 'gatewayApi'"),
    ({"traffic.provider": {"service": {}, "gatewayAPI": {"parentRefs": [{"name": "g"}]}}}, "need one of them"),
    ({"traffic.affinity": {"type": "Header", "header": {"name": "x-session-id"}}}, "Header needs provider.gatewayAPI"),
    ({"traffic": {"provider": {"gatewayAPI": {"parentRefs": [{"name": "g"}]}}, "affinity": {"type": "Header"}}}, "header.name: is missing"),
    ({"disruption.podDisruptionBudget": {"maxUnavailable": -1}}, "number of pods"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"), CASES, ids=[c[1][:40] + str(i) for i, c in enumerate(CASES)]
)
def test_given_one_fault_when_parsed_then_it_is_told(change: dict[str, Any], told: str) -> None:
    assert any(told in fault for fault in faults(change)), faults(change)


@pytest.mark.parametrize("name", ["Chat", "1chat", "a" * 41, "chat-preview", "a.b", "chat-"])
def test_given_a_name_that_no_service_can_have_when_parsed_then_it_is_told(name: str) -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        parse(raw(name=name))


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(junk)
def test_given_anything_at_all_when_parsed_then_only_invalid_spec_is_raised(value: Any) -> None:
    with pytest.raises(InvalidSpec):
        parse(value)


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [prefix] if prefix else []
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        found += paths(inner, (*prefix, key))
    return found


WHOLE = raw(
    {
        "engine": {
            "image": "x",
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "resources": {"limits": {"cpu": 1}},
            "volumes": [{"name": "v", "configMap": {"name": "c"}}],
            "volumeMounts": [{"name": "v", "mountPath": "/m"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
            "tolerations": [{"key": "a"}],
            "health": {"readiness": "/r"},
        },
        "strategy.canary.steps": [{"setWeight": 5}, {"analysis": {"objectives": ["p99"]}}, {"pause": {"duration": "1m"}}],
        "analysis.objectives": [objective()],
        "preflight": {"requirements": {"gpu": {"count": 1}}, "onFailure": {"retries": 1}},
        "warmup": {"source": {"promptSet": {"configMapName": "w"}}},
        "traffic": {"verify": {"maxDelay": "60s"}},
        "disruption": {"podDisruptionBudget": {"maxUnavailable": 1}},
    }
)  # fmt: skip
PATHS = paths(WHOLE["spec"])


@given(st.sampled_from(PATHS), junk)
def test_given_junk_anywhere_in_a_good_spec_when_parsed_then_it_is_a_spec_or_told(
    path: tuple[Any, ...], value: Any
) -> None:
    broken = copy.deepcopy(WHOLE)
    target: Any = broken["spec"]
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    try:
        assert isinstance(parse(broken), Spec)
    except InvalidSpec as error:
        told = error.faults
        unknown = [fault for fault in told if not fault.startswith(("spec", "metadata"))]
        if unknown or not told:
            raise
