from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from rampway_operator.cluster.readings import pods_from, replica_set_from, routed_pods
from rampway_operator.core.observed import Arm, CheckState, Pool

REPLICA_SET: dict[str, Any] = {
    "metadata": {
        "name": "chat-aaaaaaaaaa",
        "uid": "rs-1",
        "resourceVersion": "7",
        "labels": {
            "rampway.dev/name": "chat",
            "rampway.dev/revision": "aaaaaaaaaa",
            "rampway.dev/pool": "main",
        },
        "annotations": {
            "rampway.dev/revision-number": "3",
            "rampway.dev/avoided-nodes": "node-a,node-b",
        },
    },
    "spec": {
        "replicas": 2,
        "template": {
            "metadata": {"labels": {"rampway.dev/arm": "candidate"}},
            "spec": {
                "containers": [
                    {"name": "sidecar", "image": "s"},
                    {"name": "engine", "image": "e:1"},
                ]
            },
        },
    },
    "status": {
        "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "chat-aaaaaaaaaa-x",
        "uid": "pod-1",
        "resourceVersion": "8",
        "creationTimestamp": "2026-11-30T12:00:00Z",
        "labels": {"rampway.dev/arm": "candidate", "rampway.dev/in-rotation": "true"},
        "ownerReferences": [
            {"uid": "someone", "controller": False},
            {"uid": "rs-1", "controller": True, "kind": "ReplicaSet"},
        ],
    },
    "spec": {"nodeName": "node-1", "initContainers": [{"name": "check-env"}]},
    "status": {
        "podIP": "10.1.2.3",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-30T12:01:00Z"}
        ],
        "initContainerStatuses": [
            {
                "name": "check-env",
                "state": {
                    "terminated": {
                        "exitCode": 0,
                        "message": "{}",
                        "finishedAt": "2026-11-30T12:00:30Z",
                    }
                },
            }
        ],
        "containerStatuses": [{"name": "engine", "restartCount": 0, "state": {"running": {}}}],
    },
}


def read_pod(**status: Any):  # type: ignore[no-untyped-def]
    pod = copy.deepcopy(POD)
    pod["status"].update(status)
    found = replica_set_from(REPLICA_SET)
    assert found is not None
    return pods_from([pod], [found])[0]


def check(state: dict[str, Any], last: dict[str, Any] | None = None):  # type: ignore[no-untyped-def]
    status = {"name": "check-env", "state": state, "lastState": last or {}}
    return read_pod(initContainerStatuses=[status]).check


def test_given_a_replica_set_of_ours_when_read_then_all_that_decisions_need_is_there() -> None:
    found = replica_set_from(REPLICA_SET)
    assert found is not None
    assert (found.hash, found.pool, found.number, found.image) == (
        "aaaaaaaaaa",
        Pool.MAIN,
        3,
        "e:1",
    )
    assert (found.template_arm, found.template_in_rotation) == (Arm.CANDIDATE, False)
    assert found.template_avoided_nodes == ("node-a", "node-b")
    assert found.failure == "exceeded quota"


@pytest.mark.parametrize("missing", ["rampway.dev/revision", "rampway.dev/pool"])
def test_given_a_replica_set_without_our_labels_when_read_then_it_is_none_of_ours(
    missing: str,
) -> None:
    broken = copy.deepcopy(REPLICA_SET)
    del broken["metadata"]["labels"][missing]
    assert replica_set_from(broken) is None


@pytest.mark.parametrize("text", ["", "-1", "three", "²"])
def test_given_an_edited_revision_number_when_read_then_it_is_zero(text: str) -> None:
    broken = copy.deepcopy(REPLICA_SET)
    broken["metadata"]["annotations"] = {"rampway.dev/revision-number": text}
    found = replica_set_from(broken)
    assert found is not None
    assert found.number == 0


def test_given_a_pod_of_ours_when_read_then_revision_and_pool_are_those_of_its_owner() -> None:
    pod = read_pod()
    assert (pod.hash, pod.pool, pod.arm) == ("aaaaaaaaaa", Pool.MAIN, Arm.CANDIDATE)
    assert pod.ready
    assert pod.ready_since == datetime(2026, 11, 30, 12, 1, tzinfo=UTC)
    assert pod.in_rotation
    assert pod.engine_started
    assert pod.check is not None
    assert (pod.check.state, pod.check.exit_code) == (CheckState.PASSED, 0)


@pytest.mark.parametrize(
    "owners",
    [[], [{"uid": "rs-1", "controller": False}], [{"uid": "rs-2", "controller": True}]],
)
def test_given_a_pod_with_our_labels_but_another_controller_when_read_then_it_is_none_of_ours(
    owners: list[dict[str, Any]],
) -> None:
    found = replica_set_from(REPLICA_SET)
    assert found is not None
    pod = copy.deepcopy(POD)
    pod["metadata"]["ownerReferences"] = owners
    assert pods_from([pod], [found]) == ()


def test_given_a_pod_just_made_when_read_then_everything_waits() -> None:
    found = replica_set_from(REPLICA_SET)
    assert found is not None
    pod = copy.deepcopy(POD)
    pod["status"], pod["spec"] = {}, {"initContainers": [{"name": "check-env"}]}
    pod["metadata"]["labels"] = {"rampway.dev/arm": "nonsense"}
    read = pods_from([pod], [found])[0]
    assert (read.ready, read.ready_since, read.ip, read.node, read.arm) == (
        False,
        None,
        None,
        None,
        None,
    )
    assert not read.engine_started
    assert read.check is not None
    assert read.check.state is CheckState.WAITING


def test_given_no_preflight_when_read_then_there_is_no_check() -> None:
    found = replica_set_from(REPLICA_SET)
    assert found is not None
    pod = copy.deepcopy(POD)
    del pod["spec"]["initContainers"]
    assert pods_from([pod], [found])[0].check is None


FAILED = {"terminated": {"exitCode": 10, "message": "m", "finishedAt": "2026-11-30T12:00:30Z"}}
PASSED = {"terminated": {"exitCode": 0}}
RUNNING = {"running": {"startedAt": "2026-11-30T12:02:00Z"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


@pytest.mark.parametrize(
    ("state", "last", "expected"),
    [
        (FAILED, {}, CheckState.FAILED),
        (BACK_OFF, FAILED, CheckState.FAILED),
        (RUNNING, FAILED, CheckState.FAILED),
        (PASSED, FAILED, CheckState.PASSED),
        (RUNNING, {}, CheckState.RUNNING),
        ({"waiting": {"reason": "PodInitializing"}}, {}, CheckState.WAITING),
        ({}, {}, CheckState.WAITING),
    ],
)
def test_given_a_check_that_is_run_again_when_read_then_a_failure_counts_until_a_run_passes(
    state: dict[str, Any], last: dict[str, Any], expected: CheckState
) -> None:
    read = check(state, last)
    assert read is not None
    assert read.state is expected
    if expected is CheckState.FAILED:
        assert (read.exit_code, read.message) == (10, "m")
        assert read.finished_at == datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
    if expected is CheckState.RUNNING:
        assert read.started_at == datetime(2026, 11, 30, 12, 2, tzinfo=UTC)


def test_given_an_image_that_cannot_be_pulled_when_read_then_the_reason_is_there() -> None:
    read = check({"waiting": {"reason": "ErrImagePull", "message": "no such host"}})
    assert read is not None
    assert read.waiting_reason == "ErrImagePull"


def test_given_an_engine_that_died_when_read_then_the_last_exit_says_how() -> None:
    ended = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "bye\n"}}
    engine = {"name": "engine", "restartCount": 2, "state": BACK_OFF, "lastState": ended}
    pod = read_pod(containerStatuses=[engine], conditions=[])
    assert (pod.engine_restarts, pod.engine_waiting_reason) == (2, "CrashLoopBackOff")
    assert pod.engine_last_exit == "OOMKilled, exit code 137: bye"
    assert pod.engine_started
    assert not pod.ready


def test_given_a_pod_that_fits_nowhere_when_read_then_the_scheduler_says_why() -> None:
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    ]
    assert read_pod(conditions=conditions).unschedulable == message


def test_given_endpoint_slices_when_read_then_only_ready_pods_take_traffic() -> None:
    def endpoint(name: str, ready: bool | None, kind: str = "Pod") -> dict[str, Any]:
        conditions = {} if ready is None else {"ready": ready}
        return {"conditions": conditions, "targetRef": {"kind": kind, "name": name}}

    slices = [
        {
            "endpoints": [
                endpoint("a", ready=True),
                endpoint("b", ready=False),
                endpoint("c", ready=None),
            ]
        },
        {"endpoints": [endpoint("node", ready=True, kind="Node"), {"addresses": ["1.2.3.4"]}]},
        {"endpoints": None},
        {},
    ]
    assert routed_pods(slices) == {"a", "c"}
