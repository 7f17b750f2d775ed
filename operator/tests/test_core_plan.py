from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from world_builders import Behaviour, World, basic_spec, names, world

from rampway_operator.core.actions import (
    CreateObject,
    DeleteObject,
    LabelPod,
    PatchPodDisruptionBudget,
    PatchReplicaSet,
    SendSmoke,
)
from rampway_operator.core.objects import child_name, replica_set_patch, with_avoided_nodes
from rampway_operator.core.observed import Arm, Pool
from rampway_operator.core.parse import parse
from rampway_operator.core.plan import plan
from rampway_operator.core.pods import pod_template
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase


def spec_of(**engine: Any) -> Spec:
    spec = basic_spec()
    spec["engine"] |= engine
    return parse({"metadata": {"name": "chat"}, "spec": spec})


def template(spec: Spec, avoided: tuple[str, ...] = ()) -> dict[str, Any]:
    return pod_template(spec, "chat-aaaaaaaaaa", "aaaaaaaaaa", avoided)


def container(pod: dict[str, Any], name: str = names.CONTAINER_ENGINE) -> dict[str, Any]:
    every = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return next(c for c in every if c["name"] == name)


def test_given_an_engine_when_templated_then_the_pod_has_the_least_rights_that_do() -> None:
    pod = template(spec_of())
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    for found in (container(pod), container(pod, names.CONTAINER_CHECK)):
        assert found["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert found["terminationMessagePolicy"] == "FallbackToLogsOnError"
        assert {"/tmp", "/dev/shm"} <= {m["mountPath"] for m in found["volumeMounts"]}


def test_given_an_engine_when_templated_then_the_check_sees_what_the_engine_will_see() -> None:
    spec = spec_of(
        resources={"limits": {"nvidia.com/gpu": 1}},
        volumes=[{"name": "models", "persistentVolumeClaim": {"claimName": "m"}}],
        volumeMounts=[{"name": "models", "mountPath": "/models"}],
        env=[
            {"name": "A", "value": "1"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
    )
    pod = template(spec)
    engine, check = container(pod), container(pod, names.CONTAINER_CHECK)
    assert check["image"] == engine["image"]
    assert check["resources"] == engine["resources"]
    assert {"/models", "/rampway"} <= {m["mountPath"] for m in check["volumeMounts"]}
    assert check["env"] == [{"name": "A", "value": "1"}], "no secret is needed for a check"
    assert engine["env"][-1] == {"name": "RAMPWAY_REVISION", "value": "aaaaaaaaaa"}
    assert check["command"][:3] == ["python3", "/rampway/check_env.pyz", "--requirements"]


def test_given_preflight_options_when_templated_then_the_check_is_run_so() -> None:
    base = basic_spec(
        preflight={
            "mode": "Warn",
            "image": "python:3",
            "timeout": "90s",
            "requirements": {"gpu": {"count": 1}},
        }
    )
    check = container(template(parse({"spec": base})), names.CONTAINER_CHECK)
    assert check["image"] == "python:3"
    assert check["command"][3:] == [
        '{"gpu":{"count":1}}',
        "--timeout",
        "1m30s",
        "--warn",
        "--other-image",
    ]
    off = template(parse({"spec": basic_spec(preflight={"mode": "Off"})}))
    assert "initContainers" not in off["spec"]
    assert all("configMap" not in v for v in off["spec"]["volumes"])


def test_given_an_own_metrics_port_when_templated_then_it_is_a_port_of_its_own() -> None:
    ports = {p["name"]: p["containerPort"] for p in container(template(spec_of()))["ports"]}
    assert ports == {"http": 8000, "metrics": 9400}
    one = container(template(spec_of(type="VLLM")))["ports"]
    assert [p["name"] for p in one] == ["http"]


def test_given_a_startup_timeout_when_templated_then_the_probe_waits_as_long() -> None:
    probe = container(template(spec_of(health={"startupTimeout": "10m"})))["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 600


def test_given_nodes_to_avoid_when_templated_then_every_alternative_keeps_away() -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {
        "nodeAffinity": {
            key: {
                "nodeSelectorTerms": [
                    {"matchFields": []},
                    {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                ]
            }
        }
    }
    before = copy.deepcopy(own)
    found = with_avoided_nodes(own, ("n2", "n1"))
    assert own == before
    terms = found["nodeAffinity"][key]["nodeSelectorTerms"]
    assert len(terms) == 2
    for term in terms:
        assert {
            "key": "kubernetes.io/hostname",
            "operator": "NotIn",
            "values": ["n1", "n2"],
        } in term["matchExpressions"]
    assert len(with_avoided_nodes({}, ("n1",))["nodeAffinity"][key]["nodeSelectorTerms"]) == 1
    assert with_avoided_nodes({}, ()) == {}


def test_given_a_template_when_made_then_it_shares_nothing_with_the_spec() -> None:
    spec = spec_of(volumes=[{"name": "v", "emptyDir": {}}], resources={"limits": {"cpu": "1"}})
    before = copy.deepcopy(spec)
    pod = template(spec)
    pod["spec"]["volumes"][0]["emptyDir"]["x"] = 1
    container(pod)["resources"]["limits"]["cpu"] = "9"
    assert spec == before


def planned(w: World) -> tuple[Any, ...]:
    return plan(w.parsed, w.observe(), now=w.now)


def test_given_a_settled_object_when_planned_then_there_is_nothing_to_do() -> None:
    w = world().deploy()
    assert planned(w) == ()


def test_given_a_plan_when_made_twice_then_it_is_the_same_and_changes_nothing() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.tick()
    observed = w.observe()
    before = repr(observed)
    assert plan(w.parsed, observed, now=w.now) == plan(w.parsed, observed, now=w.now)
    assert repr(observed) == before


def test_given_a_new_candidate_when_planned_then_names_are_made_before_pods() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.tick()
    made = [a for a in planned(w) if isinstance(a, CreateObject)]
    name = child_name("chat", w.spec_hash)
    assert [(a.kind, a.name) for a in made] == [
        ("Service", name),
        ("ConfigMap", name),
        ("ReplicaSet", name),
    ]
    manifest = made[-1].manifest
    labels = manifest["spec"]["template"]["metadata"]["labels"]
    assert labels[names.LABEL_ARM] == "candidate"
    assert names.LABEL_ROTATION not in labels, "a candidate gets traffic by label, never by birth"
    assert names.LABEL_ARM not in manifest["spec"]["selector"]["matchLabels"]
    assert manifest["spec"]["replicas"] == 1
    json.dumps(manifest)


def test_given_a_baseline_when_made_then_it_copies_the_stable_template_and_not_the_spec() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    stable = w.state.stable
    assert stable is not None
    copied = w.sets[child_name("chat", stable.hash, Pool.BASELINE)].manifest["spec"]["template"]
    source = w.sets[child_name("chat", stable.hash)].manifest["spec"]["template"]
    assert copied["spec"] == source["spec"]
    assert copied["metadata"]["labels"][names.LABEL_POOL] == "baseline"
    assert names.LABEL_ROTATION not in copied["metadata"]["labels"]


def test_given_pods_that_change_places_when_planned_then_none_leaves_before_others_get_its_traffic() -> (
    None
):
    """T54."""
    w = world(strategy={"canary": {"steps": [{"setWeight": 50}], "bake": "10s"}}).deploy()
    w.set_image("v2")
    leaving = 0
    for _ in range(400):
        out = {a.name for a in planned(w) if isinstance(a, LabelPod) and not a.in_rotation}
        gone = {name for name in out if w.pods[name].labels.get(names.LABEL_ROTATION) == "true"}
        leaving += len(gone)
        assert not gone or len(w.routed.keys() - gone) >= 4
        w.tick()
        w.advance(1)
    assert leaving >= 4


def test_given_a_candidate_that_failed_hard_when_planned_then_stable_enters_before_it_leaves() -> (
    None
):
    """T54: both are in one plan, whose actions are written one by one."""
    w = world(strategy={"canary": {"steps": [{"setWeight": 50}, {"pause": {}}]}}).deploy()
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.behaviours, w.pristine = {"v2": Behaviour(crashes=True)}, False
    exchanges = 0
    for _ in range(300):
        labels = [a.in_rotation for a in planned(w) if isinstance(a, LabelPod)]
        assert labels == sorted(labels, reverse=True)
        exchanges += len(set(labels)) == 2
        w.tick()
        w.advance(1)
    assert w.state.rollout is None
    assert exchanges


def test_given_a_patch_when_written_then_only_living_fields_are_in_it() -> None:
    action = PatchReplicaSet("chat-x", "5", 2, Arm.STABLE, in_rotation=True, avoided_nodes=("n1",))
    assert replica_set_patch(spec_of(), action) == {
        "metadata": {"resourceVersion": "5"},
        "spec": {
            "replicas": 2,
            "template": {
                "metadata": {"labels": {names.LABEL_ARM: "stable", names.LABEL_ROTATION: "true"}}
            },
        },
    }
    moved = replace(action, in_rotation=False, affinity={"nodeAffinity": {}})
    patch = replica_set_patch(spec_of(), moved)
    assert patch["spec"]["template"]["spec"] == {"affinity": {"nodeAffinity": {}}}
    assert patch["metadata"]["annotations"] == {names.ANNOTATION_AVOIDED_NODES: "n1"}
    assert patch["spec"]["template"]["metadata"]["labels"][names.LABEL_ROTATION] is None


def test_given_a_promotion_when_planned_then_the_budget_follows_the_stable_pods() -> None:
    w = world().deploy()
    first = w.state.stable
    assert w.budget is not None
    assert first is not None
    assert w.budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert w.budget["spec"]["selector"]["matchLabels"] == {
        names.LABEL_NAME: "chat",
        names.LABEL_REVISION: first.hash,
        names.LABEL_POOL: "main",
    }
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    assert not any(isinstance(a, PatchPodDisruptionBudget) for a in planned(w))
    w.until_settled()
    assert w.budget["spec"]["selector"]["matchLabels"][names.LABEL_REVISION] == w.spec_hash


def test_given_someone_elses_object_of_our_name_when_planned_then_it_is_left_alone() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.tick()
    name = child_name("chat", w.spec_hash)
    observed = replace(w.observe(), foreign=(f"ReplicaSet/{name}",))
    made = [a.kind for a in plan(w.parsed, observed, now=w.now) if isinstance(a, CreateObject)]
    assert "ReplicaSet" not in made


def test_given_an_operator_without_uids_when_cleaning_up_then_nothing_is_deleted_by_name_alone() -> (
    None
):
    w = world(revisionHistoryLimit=0).deploy()
    w.set_image("v2")
    w.until_settled()
    observed = replace(w.observe(), uids={})
    deletions = [a for a in plan(w.parsed, observed, now=w.now) if isinstance(a, DeleteObject)]
    assert all(a.kind == "ReplicaSet" and a.uid for a in deletions)


def test_given_a_missing_stable_set_when_the_spec_still_describes_it_then_it_is_made_again() -> (
    None
):
    w = world().deploy()
    w.pristine = False
    name = child_name("chat", w.spec_hash)
    del w.sets[name]
    for pod in w.live():
        w.kill(pod)
    w.until_settled()
    assert len(w.serving()) == 4


def test_given_a_candidate_when_ready_then_it_is_asked_for_a_token_and_stable_is_not() -> None:
    w = world().deploy()
    w.set_image("v2")
    asked: set[str] = set()
    for _ in range(60):
        asked |= {a.pod_name for a in planned(w) if isinstance(a, SendSmoke)}
        w.tick()
        w.advance(1)
    assert asked
    assert all(w.spec_hash in name or "-b-" in name for name in asked)


@pytest.mark.parametrize("delay", ["5s", "5m"])
def test_given_a_promotion_when_draining_then_old_pods_stay_for_the_delay_out_of_rotation(
    delay: str,
) -> None:
    w = world(strategy={"canary": {"bake": "20s", "scaleDownDelay": delay}}).deploy()
    w.set_image("v2")
    w.until_phase(Phase.DRAINING)
    begun = w.now
    left: list[timedelta] = []

    def watch(w: World) -> bool:
        if any(p.image == "v1" for p in w.live()):
            left.append(w.now - begun)
        assert all(p.image == "v2" for p in w.serving())
        return w.phase is Phase.IDLE

    w.run(900, watch)
    assert left[-1] >= timedelta(seconds=4 if delay == "5s" else 290)


def test_given_no_room_for_a_baseline_when_it_never_comes_then_it_pauses_and_nobody_is_blamed() -> (
    None
):
    w = world(progressDeadline="5m", strategy={"canary": {"maxSurge": 2}}).deploy()
    w.set_image("v2")
    w.capacity = 5
    w.until_phase(Phase.PAUSED)
    assert w.status["reason"] == "BaselineUnavailable"
    w.capacity = 6
    w.give("promote")
    w.until_settled()
    assert {p.image for p in w.serving()} == {"v2"}


def test_given_steps_when_the_last_is_below_100_then_the_rollout_still_ends_there() -> None:
    w = world(strategy={"canary": {"steps": [{"setWeight": 25}, {"analysis": {}}], "bake": "20s"}})
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert {p.image for p in w.serving()} == {"v2"}


def test_given_a_node_to_avoid_when_planned_then_the_template_is_seen_to_avoid_it_before_the_pod_goes() -> (
    None
):
    """Deleted at once, the pod could be made again from the template of before."""
    w = world().deploy()
    w.behaviours = {"v2": Behaviour(bad_nodes=frozenset(w.nodes))}
    w.set_image("v2")
    seen: set[str] = set()
    for _ in range(60):
        kinds = {type(a).__name__ for a in planned(w)}
        assert not {"PatchReplicaSet", "DeletePod"} <= kinds
        seen |= kinds
        w.tick()
        w.advance(1)
    assert {"PatchReplicaSet", "DeletePod"} <= seen
