"""A real API server takes good InferenceDeployments, refuses bad ones, and says what to do about them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.kube import CommandFailed, Kube
from rampway_operator.core.parse import parse
from rampway_operator.core.spec import Engine, Spec

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds" / "inferencedeployments.yaml"
EXAMPLES = ROOT / "crds" / "examples"
IMAGE = "registry.example/llm:1"
TTFT = {"name": "ttft", "metric": "TTFT"}
SLOWER = {"against": "Baseline", "maxRegression": "0.25"}

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def api(kubeconfig: str) -> Kube:
    """A cluster with this CRD; objects are only tried (dry run), but for one."""
    cluster = Kube(kubeconfig, "default")
    cluster.apply_crds()
    return cluster


def minimal() -> dict[str, Any]:
    return {
        "apiVersion": "rampway.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "e2e-admission"},
        "spec": {"engine": {"image": IMAGE}},
    }


def tried(api: Kube, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as the API server would store it; raises CommandFailed with its refusal."""
    told = api.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(obj))
    stored: dict[str, Any] = json.loads(told)
    return stored


def spec(**blocks: Any) -> Change:
    return lambda obj: obj["spec"].update(copy.deepcopy(blocks))


def engine(**fields: Any) -> Change:
    return lambda obj: obj["spec"]["engine"].update(copy.deepcopy(fields))


def canary(**fields: Any) -> Change:
    return spec(strategy={"canary": fields})


def steps(*items: dict[str, Any]) -> Change:
    return canary(steps=list(items))


def objective(**fields: Any) -> Change:
    return spec(analysis={"objectives": [{"name": "it", "metric": "TTFT", **fields}]})


def named(name: str) -> Change:
    return lambda obj: obj["metadata"].update(name=name)


def requirements(**fields: Any) -> Change:
    return spec(preflight={"requirements": fields})


PASSING_ERRORS = {"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.01"}}

REFUSED: dict[str, tuple[Change, str]] = {
    "a name that is too long": (named("a" * 41), "use at most 40 lower case letters"),
    "a name that begins with a digit": (named("7chat"), "use at most 40 lower case letters"),
    "a name of a preview Service": (named("chat-preview"), "names ending in -preview"),
    "no engine": (lambda obj: obj["spec"].pop("engine"), "spec.engine: Required value"),
    "no image": (lambda obj: obj["spec"]["engine"].pop("image"), "spec.engine.image: Required"),
    "an unknown field": (spec(replica=3), 'unknown field "spec.replica"'),
    "an unknown field of the engine": (engine(privileged=True), "unknown field"),
    "a field of a later version": (spec(topology={}), 'unknown field "spec.topology"'),
    "negative replicas": (spec(replicas=-1), "spec.replicas"),
    "an image with a space": (engine(image="a b"), "spec.engine.image"),
    "a duration without a unit": (spec(progressDeadline="30"), "spec.progressDeadline"),
    "a deadline that is too short": (spec(progressDeadline="5s"), "must be at least 10s"),
    "ready seconds beyond the deadline": (
        spec(minReadySeconds=60, progressDeadline="60s"),
        "minReadySeconds must be shorter than progressDeadline",
    ),
    "a library path in the environment": (
        engine(env=[{"name": "LD_PRELOAD", "value": "x"}]),
        "change what code is loaded",
    ),
    "a variable of the operator": (
        engine(env=[{"name": "RAMPWAY_X", "value": "x"}]),
        "RAMPWAY_* is the",
    ),
    "a variable given twice": (
        engine(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        "Duplicate value",
    ),
    "a variable with two values": (
        engine(
            env=[
                {
                    "name": "A",
                    "value": "1",
                    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                }
            ]
        ),
        "value or valueFrom, not both",
    ),
    "a variable with two sources": (
        engine(
            env=[
                {
                    "name": "A",
                    "valueFrom": {
                        "fieldRef": {"fieldPath": "metadata.name"},
                        "secretKeyRef": {"name": "s", "key": "k"},
                    },
                }
            ]
        ),
        "exactly one of configMapKeyRef",
    ),
    "a host path": (
        engine(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        "unknown field",
    ),
    "a volume without a source": (engine(volumes=[{"name": "v"}]), "a volume needs exactly one of"),
    "a volume of the operator": (
        engine(volumes=[{"name": "rampway-check", "emptyDir": {}}]),
        "taken by the operator",
    ),
    "a file outside its volume": (
        engine(
            volumes=[
                {"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}
            ]
        ),
        "path must be relative",
    ),
    "a mount without its volume": (
        engine(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        "names a volume that engine.volumes does not have",
    ),
    "a mount over check_env": (
        engine(
            volumes=[{"name": "v", "emptyDir": {}}],
            volumeMounts=[{"name": "v", "mountPath": "/rampway/check_env.pyz"}],
        ),
        "mounted by the operator",
    ),
    "a sub path that leaves its volume": (
        engine(
            volumes=[{"name": "v", "emptyDir": {}}],
            volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "../.."}],
        ),
        "subPath must be relative",
    ),
    "a claim nobody makes": (
        engine(resources={"claims": [{"name": "gpus"}]}),
        "names a claim that engine.resourceClaims does not have",
    ),
    "a claim of two kinds": (
        engine(
            resourceClaims=[
                {"name": "g", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}
            ]
        ),
        "exactly one of resourceClaimName and",
    ),
    "a GPU that is only requested": (
        engine(resources={"requests": {"nvidia.com/gpu": 1}}),
        "must be in resources.limits",
    ),
    "a request above its limit": (
        engine(resources={"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}),
        "a request must not be larger than its limit",
    ),
    "an amount that is none": (
        engine(resources={"limits": {"cpu": "lots"}}),
        "spec.engine.resources",
    ),
    "a label of the operator": (
        engine(podLabels={"rampway.dev/arm": "stable"}),
        "labels under rampway.dev/ belong to the operator",
    ),
    "a label key that is none": (engine(podLabels={"-a": "b"}), "a label key is an optional"),
    "an annotation of the operator": (
        engine(podAnnotations={"controller.kubernetes.io/pod-deletion-cost": "1"}),
        "belong to the operator",
    ),
    "an annotation key that is none": (
        engine(podAnnotations={"a b": "c"}),
        "an annotation key is an optional",
    ),
    "a toleration of nothing": (engine(tolerations=[{"value": "x"}]), "needs operator Exists"),
    "a toleration of every value of one": (
        engine(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
        "takes no value",
    ),
    "a start that never ends": (
        engine(health={"startupTimeout": "25h"}),
        "startupTimeout must be between",
    ),
    "a version range that is none": (requirements(glibcxx="3.4.30"), "requirements.glibcxx"),
    "a requirement that is none": (requirements(glibxx=">=3"), "unknown field"),
    "a check without a command": (
        requirements(custom=[{"name": "x", "command": []}]),
        "custom[0].command",
    ),
    "a check that cannot end": (
        spec(preflight={"timeout": "1s"}),
        "preflight.timeout must be at least",
    ),
    "a warm-up without prompts": (spec(warmup={}), "spec.warmup.source: Required value"),
    "a warm-up beyond the deadline": (
        spec(
            warmup={
                "source": {"promptSet": {"configMapName": "w"}},
                "budget": {"maxDuration": "40m"},
            }
        ),
        "must not be longer than progressDeadline",
    ),
    "another traffic provider": (spec(traffic={"provider": {"gatewayAPI": {}}}), "unknown field"),
    "another strategy": (spec(strategy={"rolling": {}}), "unknown field"),
    "an empty strategy": (spec(strategy={}), "needs exactly one of canary and blueGreen"),
    "two strategies": (
        spec(strategy={"canary": {}, "blueGreen": {}}),
        "needs exactly one of canary and blueGreen",
    ),
    "a preview without pods": (
        spec(strategy={"blueGreen": {"previewReplicas": "0%"}}),
        "previewReplicas 0 leaves nothing to judge",
    ),
    "a preview that is compared": (
        spec(strategy={"blueGreen": {"prePromotion": {"objectives": ["ttft-tail"]}}}),
        "blueGreen.prePromotion names an objective",
    ),
    "a secret as configuration": (spec(configRefs=[{"kind": "Secret", "name": "s"}]), "kind"),
    "a ConfigMap twice": (spec(configRefs=[{"name": "c"}, {"name": "c"}]), "Duplicate value"),
    "a step of two kinds": (
        steps({"setWeight": 5, "pause": {}}, {"setWeight": 100}),
        "a step needs exactly one of",
    ),
    "a step of no kind": (steps({}), "a step needs exactly one of"),
    "a weight of 0": (steps({"setWeight": 0}), "setWeight"),
    "weights that fall": (
        steps({"setWeight": 50}, {"setWeight": 5}),
        "the weights of setWeight steps must not fall",
    ),
    "a step after 100 percent": (
        steps({"setWeight": 5}, {"setWeight": 100}, {"analysis": {}}),
        "setWeight 100 must be the last step",
    ),
    "100 percent twice": (
        steps({"setWeight": 100}, {"setWeight": 100}),
        "setWeight 100 must be the last step",
    ),
    "an analysis without traffic": (
        steps({"analysis": {}}, {"setWeight": 5}),
        "an analysis step needs traffic",
    ),
    "an objective nobody has": (
        steps({"setWeight": 5}, {"analysis": {"objectives": ["nope"]}}),
        "a step names an objective that spec.analysis.objectives does not have",
    ),
    "a surge and an outage of 0": (
        canary(maxSurge="0%", maxUnavailable=0),
        "maxSurge 0 swaps pods in place",
    ),
    "a surge above 100 percent": (canary(maxSurge="101%"), "maxSurge"),
    "no baseline to compare with": (
        canary(baseline={"enabled": False}),
        "strategy.canary.baseline.enabled is false",
    ),
    "nothing that could stop a candidate": (
        spec(analysis={"objectives": [{**PASSING_ERRORS, "blocking": False}]}),
        "at least one objective with blocking true",
    ),
    "no objective at all": (
        spec(analysis={"objectives": []}),
        "at least one objective with blocking true",
    ),
    "a window longer than the analysis": (
        spec(analysis={"interval": "30m", "maxDuration": "10m"}),
        "analysis.interval must not be longer",
    ),
    "a window that is too short": (spec(analysis={"interval": "10ms"}), "interval must be between"),
    "an impossible false abort rate": (
        spec(analysis={"errorRates": {"falseAbort": "0.00"}}),
        "errorRates.falseAbort must be above 0",
    ),
    "an impossible missed regression rate": (
        spec(analysis={"errorRates": {"missedRegression": "0.9"}}),
        "errorRates.missedRegression must be above 0",
    ),
    "a number instead of a decimal": (
        spec(analysis={"errorRates": {"falseAbort": 0.05}}),
        "must be of type string",
    ),
    "two sources of metrics": (
        spec(analysis={"source": {"direct": {}, "prometheus": {"name": "main"}}}),
        "analysis.source has 2 sources; keep one of direct and prometheus",
    ),
    "an objective without a limit": (
        objective(quantile="0.99"),
        "exactly one of slo (an absolute limit) and comparison",
    ),
    "an objective with two limits": (
        objective(quantile="0.99", slo={"max": "1s"}, comparison=SLOWER),
        "exactly one of slo (an absolute limit) and comparison",
    ),
    "a latency without a part": (objective(comparison=SLOWER), "exactly one of quantile and tail"),
    "an error rate with a quantile": (
        objective(metric="ErrorRate", quantile="0.99", slo={"max": "0.1"}),
        "other metrics take neither",
    ),
    "a tail without another arm": (
        objective(tail="0.90", slo={"max": "1s"}),
        "tail compares two arms",
    ),
    "a quantile on too few requests": (
        objective(quantile="0.99", comparison=SLOWER, minSamples=299),
        "minSamples * (1 - quantile) must be at least 3",
    ),
    "a quantile that is low": (
        objective(quantile="0.1", comparison=SLOWER),
        "quantile must be at least 0.5",
    ),
    "a tail that is most": (objective(tail="0.2", comparison=SLOWER), "tail must be at least 0.5"),
    "a hit rate against Stable": (
        objective(metric="PrefixCacheHitRate", comparison={"against": "Stable", "maxDrop": "0.05"}),
        "PrefixCacheHitRate needs comparison with maxDrop against Baseline",
    ),
    "a hit rate with a regression": (
        objective(metric="PrefixCacheHitRate", comparison=SLOWER),
        "PrefixCacheHitRate needs comparison with maxDrop",
    ),
    "a latency with a drop": (
        objective(tail="0.90", comparison={"maxDrop": "0.05"}),
        "a latency comparison needs maxRegression",
    ),
    "a comparison without a margin": (
        objective(tail="0.90", comparison={"against": "Baseline"}),
        "exactly one of maxRegression (latency) and maxDrop",
    ),
    "an error rate that is compared": (
        objective(metric="ErrorRate", comparison=SLOWER),
        "ErrorRate needs slo.max",
    ),
    "a latency limit without a unit": (
        objective(quantile="0.99", slo={"max": "2.5"}),
        "slo.max is a duration such as 2500ms",
    ),
    "an error limit with a unit": (
        objective(metric="ErrorRate", slo={"max": "1s"}),
        "slo.max is a duration such as 2500ms",
    ),
    "an objective given twice": (
        spec(analysis={"objectives": [PASSING_ERRORS, PASSING_ERRORS]}),
        "Duplicate value",
    ),
    "too many steps": (steps(*[{"pause": {}}] * 31), "must have at most 30 items"),
    "a budget that is none": (
        spec(disruption={"podDisruptionBudget": {"maxUnavailable": "all"}}),
        "podDisruptionBudget.maxUnavailable",
    ),
}

TAKEN: dict[str, Change] = {
    "an empty canary": spec(strategy={"canary": {}}),
    "an empty blue-green": spec(strategy={"blueGreen": {}}),
    "a blue-green with a judged preview": spec(
        strategy={"blueGreen": {"previewReplicas": 1, "prePromotion": {"objectives": ["errors"]}}}
    ),
    "tracked configuration": spec(configRefs=[{"name": "c"}, {"name": "d", "onChange": "Ignore"}]),
    "empty blocks": spec(traffic={"provider": {}}, analysis={"source": {}}, disruption={}),
    "metrics of a Prometheus": spec(analysis={"source": {"prometheus": {"name": "main"}}}),
    "the longest name": named("a" * 40),
    "no steps": steps(),
    "only a pause": steps({"pause": {}}),
    "equal weights": steps({"setWeight": 5}, {"setWeight": 5}),
    "a swap in place": lambda obj: (
        canary(maxSurge=0, maxUnavailable=1)(obj),
        spec(replicas=4)(obj),
    ),
    "the smallest sample of a P99": objective(quantile="0.99", comparison=SLOWER, minSamples=300),
    "thirty requests for a P90, whose product is 3 but for rounding": objective(
        quantile="0.90", comparison=SLOWER, minSamples=30
    ),
    "a limit alone": objective(metric="ErrorRate", slo={"max": "0.005"}),
    "no baseline and no comparison": lambda obj: (
        canary(baseline={"enabled": False})(obj),
        spec(analysis={"objectives": [PASSING_ERRORS]})(obj),
    ),
    "GPUs": engine(
        resources={"limits": {"nvidia.com/gpu": 8}, "requests": {"nvidia.com/gpu": "8"}}
    ),
    "a dedicated node": engine(tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "requirements": requirements(
        glibcxx=">=3.4.30",
        triton=">=3.4, <4",
        gpu={"count": 1, "freeMemory": "60Gi", "computeCapability": ["9.0"]},
        memlock="unlimited",
        custom=[{"name": "pair", "command": ["/check"], "timeout": "60s", "class": "BadNode"}],
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_given_a_bad_object_when_created_then_it_is_refused_with_the_remedy(
    api: Kube, change: Change, message: str
) -> None:
    obj = minimal()
    change(obj)

    with pytest.raises(CommandFailed) as refusal:
        tried(api, obj)

    assert message in " ".join(str(refusal.value).split())


def test_given_the_rules_of_the_crd_then_each_was_seen_to_refuse() -> None:
    """A rule that nothing breaks here may be a rule that nothing can break."""
    rules = set(messages(yaml.safe_load(CRD.read_text(encoding="utf-8"))))
    expected = [message for _, message in REFUSED.values()]

    assert {rule for rule in rules if not any(part in rule for part in expected)} == set()


def messages(node: Any) -> list[str]:
    """Return the messages of all rules below a node."""
    if isinstance(node, dict):
        own = [
            " ".join(rule["message"].split()) for rule in node.get("x-kubernetes-validations", [])
        ]
        return own + [
            text for key, inner in node.items() for text in messages(inner) if key != "message"
        ]
    return [text for inner in node for text in messages(inner)] if isinstance(node, list) else []


@pytest.mark.parametrize("change", TAKEN.values(), ids=TAKEN.keys())
def test_given_a_good_object_when_created_then_it_is_taken_and_the_operator_reads_it(
    api: Kube, change: Change
) -> None:
    obj = minimal()
    change(obj)

    parse(tried(api, obj))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_given_an_example_when_applied_then_it_is_taken(api: Kube, file: Path) -> None:
    api.kubectl("apply", "--dry-run=server", "-f", str(file))


def test_given_only_an_image_when_created_then_the_stored_defaults_are_those_of_the_operator(
    api: Kube,
) -> None:
    stored = tried(api, minimal())

    assert parse(stored) == Spec(engine=Engine(image=IMAGE))
    assert stored["status"] == {"observedGeneration": -1}


def test_given_an_object_when_scaled_then_the_scale_subresource_moves_only_replicas(
    api: Kube,
) -> None:
    name = minimal()["metadata"]["name"]
    api.apply(minimal())
    try:
        before = api.get("infd", name)
        api.kubectl("scale", f"infd/{name}", "--replicas=3")
        after = api.get("infd", name)
        shown = api.kubectl("get", "infd", name, "-o", "wide")
    finally:
        api.kubectl("delete", "infd", name)

    assert before["spec"]["replicas"] == 1
    assert after["spec"] == {**before["spec"], "replicas": 3}
    heads = "NAME PHASE STABLE CANDIDATE STEP WEIGHT READY ENV AGE VERDICT CACHE REASON"
    assert shown.splitlines()[0].split() == heads.split()


def test_given_the_crd_when_stored_then_its_fields_are_those_of_the_file(api: Kube) -> None:
    """Another YAML reader may see other keys: a bare `n` was once a boolean to it."""
    stored = api.get("crd", "inferencedeployments.rampway.dev")
    file = yaml.safe_load(CRD.read_text(encoding="utf-8"))

    assert field_paths(stored) == field_paths(file)


def field_paths(crd: dict[str, Any]) -> set[str]:
    """Return the path of every field of the schema."""
    found = set()

    def walk(schema: dict[str, Any], path: str) -> None:
        for name, inner in schema.get("properties", {}).items():
            found.add(f"{path}.{name}")
            walk(inner, f"{path}.{name}")
        walk(schema["items"], f"{path}[]") if "items" in schema else None

    walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "")
    return found


def test_given_the_api_when_explained_then_kubectl_shows_descriptions(api: Kube) -> None:
    shown = api.kubectl("explain", "infd.spec.strategy.canary.steps")

    assert "exactly one action" in " ".join(shown.split())
