from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from api_server import Fault
from fake_cluster import KEY, FakeCluster, look, until

from rampway_operator.cluster import client as client_module
from rampway_operator.errors import Unavailable
from rampway_operator.reconcile import Reconciler

OLD, NEW = "engine:1", "engine:2"


@pytest.fixture(autouse=True)
def _silent_log() -> None:
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[FakeCluster]:
    async with FakeCluster(tmp_path) as started:
        yield started


@pytest.fixture
async def operator(cluster: FakeCluster) -> AsyncIterator[Reconciler]:
    reconciler, client = await cluster.reconciler()
    yield reconciler
    await reconciler.close()
    await client.close()


async def promoted_first(cluster: FakeCluster, operator: Reconciler) -> None:
    cluster.deploy(OLD)
    await until(cluster, operator, "Preflight")
    await until(cluster, operator, "Idle")


async def test_given_a_first_deployment_when_reconciled_then_it_serves_and_nothing_more_is_written(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("RolloutComplete")["reason"] == "Promoted"
    for _ in range(3):
        await look(cluster, operator)
    cluster.requests.clear()
    for _ in range(20):
        await look(cluster, operator)
    assert cluster.writes() == []


def outcome(cluster: FakeCluster) -> tuple[str, str]:
    last = cluster.status["history"][-1]
    return last["outcome"], last["message"]


SHORT = {
    "strategy": {
        "canary": {
            "steps": [{"setWeight": 50}, {"analysis": {}}, {"setWeight": 100}],
            "bake": "1m",
            "scaleDownDelay": "10s",
        }
    }
}


async def test_given_a_good_candidate_when_analysed_then_promoted_with_its_numbers_recorded(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    cluster.least_serving = 2
    cluster.deploy(NEW, **SHORT)
    await until(cluster, operator, "Analyzing")
    await until(cluster, operator, "Idle", looks=2000, requests=200)
    assert outcome(cluster)[0] == "Promoted"
    assert cluster.status["stableRevision"]["image"] == NEW
    assert cluster.least_serving == 2
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.all("pods")} == {NEW}


async def test_given_a_candidate_with_a_cold_cache_when_analysed_then_rolled_back_on_the_hit_rate(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    cluster.behaviour(NEW).hit_rate = 0.0
    cluster.deploy(NEW, **SHORT)
    await until(cluster, operator, "RollingBack", looks=2000, requests=200)
    await until(cluster, operator, "Idle")
    reason, message = outcome(cluster)
    assert reason == "AnalysisFailed"
    assert "hit" in message
    assert cluster.status["stableRevision"]["image"] == OLD
    assert {pod["spec"]["containers"][0]["image"] for pod in cluster.all("pods")} == {OLD}


async def test_given_a_candidate_whose_check_fails_when_seen_then_rolled_back_at_once_and_never_in_rotation(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    bad = cluster.behaviour(NEW)
    bad.check_exit, bad.check_message = (
        10,
        '{"v":1,"class":"BadRevision","failed":[{"check":"glibcxx"}]}',
    )
    cluster.deploy(NEW, **SHORT)
    looks = await until(cluster, operator, "RollingBack")
    assert looks < 10
    await until(cluster, operator, "Idle")
    assert outcome(cluster)[0] == "BadRevision"
    events = [e for e in cluster.all("events") if e["reason"] == "BadRevision"]
    assert [e["type"] for e in events] == ["Warning"]


async def test_given_a_service_of_someone_else_with_our_name_when_reconciled_then_it_is_reported_and_left_alone(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    theirs = cluster.put(
        "services", {"metadata": {"name": "chat"}, "spec": {"selector": {"app": "x"}}}
    )
    cluster.deploy(OLD)
    for _ in range(5):
        await look(cluster, operator)
    assert cluster.condition("SpecValid")["reason"] == "NameConflict"
    assert "Service/chat" in cluster.condition("SpecValid")["message"]
    assert cluster.get("services", "chat") == theirs
    cluster.requests.clear()
    for _ in range(3):
        await look(cluster, operator)
    assert [path for _, path in cluster.writes() if "services" in path] == []
    del cluster.objects["services", "prod", "chat"]
    await until(cluster, operator, "Idle")
    assert cluster.condition("SpecValid")["status"] == "True"


async def test_given_an_invalid_spec_when_reconciled_then_every_fault_is_reported_and_nothing_is_made(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    cluster.deploy(OLD, replicas=-1, progressDeadline="soon")
    again = await look(cluster, operator)
    message = cluster.condition("SpecValid")["message"]
    assert "spec.replicas" in message
    assert "spec.progressDeadline" in message
    assert again is not None
    assert again >= 48
    assert cluster.all("replicasets") == cluster.all("pods") == cluster.all("services") == []
    cluster.requests.clear()
    await look(cluster, operator)
    assert cluster.writes() == []


async def test_given_a_spec_that_becomes_invalid_when_reconciled_then_what_serves_keeps_serving(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    before = (cluster.all("pods"), cluster.all("replicasets"))
    cluster.deploy("", replicas=2)
    for _ in range(5):
        await look(cluster, operator)
    assert cluster.condition("SpecValid")["status"] == "False"
    assert cluster.condition("Ready")["status"] == "True"
    assert (cluster.all("pods"), cluster.all("replicasets")) == before


async def test_given_a_request_that_is_refused_when_reconciled_then_it_is_reported_and_retried_after_a_minute(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    cluster.faults = [Fault(403, "create", "replicasets", times=2)]
    cluster.deploy(OLD)
    await look(cluster, operator)
    assert await look(cluster, operator) == 60.0
    stalled = cluster.condition("Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "Refused")
    assert [s["metadata"]["name"] for s in cluster.all("services")], "the rest was done"
    await until(cluster, operator, "Idle")
    assert cluster.condition("Stalled")["status"] == "False"


async def test_given_conflicts_without_end_when_reconciled_then_looks_come_less_and_less_often(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    cluster.faults = [Fault(409, "patch", "inferencedeployments", times=20)]
    cluster.deploy(OLD)
    pauses = [await operator.reconcile(KEY) for _ in range(10)]
    assert pauses[:3] == [0.05, 0.1, 0.2]
    assert pauses[-1] == 5.0


async def test_given_an_api_server_that_is_down_when_reconciled_then_it_raises_and_nothing_is_decided(
    cluster: FakeCluster, operator: Reconciler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "READ_RETRY_SECONDS", ())
    await promoted_first(cluster, operator)
    status = cluster.status
    cluster.faults = [Fault(503, times=50)]
    for _ in range(10):
        with pytest.raises(Unavailable):
            await operator.reconcile(KEY)
    cluster.faults = []
    await look(cluster, operator)
    assert cluster.status == status


async def test_given_an_object_that_is_gone_when_reconciled_then_the_key_is_forgotten(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    del cluster.objects["inferencedeployments", "prod", "chat"]
    assert await operator.reconcile(KEY) is None


async def test_given_an_object_being_deleted_when_reconciled_then_nothing_is_written(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    found = cluster.deploy(OLD)
    found["metadata"]["deletionTimestamp"] = "2026-11-30T12:00:00Z"
    cluster.requests.clear()
    await operator.reconcile(KEY)
    assert cluster.writes() == []


async def test_given_an_engine_that_gives_no_token_when_ready_then_it_never_takes_traffic(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    cluster.behaviour(NEW).answers = False
    cluster.deploy(NEW, **SHORT, progressDeadline="2m")
    for _ in range(100):
        await look(cluster, operator)
        new = [p for p in cluster.all("pods") if p["spec"]["containers"][0]["image"] == NEW]
        assert not any(p["metadata"]["labels"].get("rampway.dev/in-rotation") for p in new)
        if cluster.status["phase"] == "Idle" and len(cluster.status["history"]) == 2:
            break
    assert cluster.status["stableRevision"]["image"] == OLD
    assert cluster.status["history"][-1]["outcome"] in {"SmokeFailed", "ProgressDeadlineExceeded"}


async def test_given_a_crd_that_prunes_a_field_when_status_is_written_then_it_is_not_written_for_ever(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    cluster.pruned = {"lastNumber"}
    await promoted_first(cluster, operator)
    for _ in range(3):
        await look(cluster, operator)
    cluster.requests.clear()
    for _ in range(10):
        await look(cluster, operator)
    assert cluster.writes() == []


async def test_given_prompts_when_warming_then_both_arms_get_the_same_and_their_rates_are_seen(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    prompts = '{"prompt": "a"}\n{"messages": [{"role": "user", "content": "b"}]}\n'
    cluster.put("configmaps", {"metadata": {"name": "warm"}, "data": {"prompts.jsonl": prompts}})
    await promoted_first(cluster, operator)
    warmup = {"source": {"promptSet": {"configMapName": "warm"}}, "budget": {"requests": 40}}
    steps = [{"warmup": {}}, {"setWeight": 25}, {"setWeight": 100}]
    canary = {"canary": {"steps": steps, "maxSurge": 2, "bake": "5s", "scaleDownDelay": "1s"}}
    cluster.deploy(NEW, replicas=2, warmup=warmup, strategy=canary)
    await until(cluster, operator, "Warming")
    for _ in range(30):
        await look(cluster, operator)
        cache = cluster.status.get("rollout", {}).get("cache", {})
        if cache.get("state") == "Steady":
            break
    assert cache["state"] == "Steady"


async def test_given_a_prompt_set_that_is_missing_when_warming_then_the_status_says_so(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    warmup = {"source": {"promptSet": {"configMapName": "nope"}}}
    cluster.deploy(NEW, **(SHORT | {"warmup": warmup}))
    text = ""
    for _ in range(40):
        await look(cluster, operator)
        text += str(cluster.status.get("waitingFor")) + str(cluster.status.get("conditions"))
    assert "ConfigMap nope does not exist" in text


async def test_given_a_command_when_reconciled_then_it_is_noted_acted_on_and_removed(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    cluster.deploy(NEW, **SHORT)
    await until(cluster, operator, "Analyzing")
    candidate = cluster.status["candidateRevision"]["hash"]
    found = cluster.get("inferencedeployments", "chat")
    assert found is not None
    command = f"abort/{candidate}/1#n1"
    found["metadata"]["annotations"] = {"rampway.dev/command": command}
    cluster.put("inferencedeployments", found)
    await until(cluster, operator, "Idle")
    assert cluster.status["lastCommand"] == {"id": command, "result": "Applied"}
    assert outcome(cluster)[0] == "Aborted"
    found = cluster.get("inferencedeployments", "chat")
    assert found is not None
    assert "rampway.dev/command" not in found["metadata"].get("annotations", {})


async def test_given_a_restarted_operator_when_it_looks_then_no_event_is_posted_twice(
    cluster: FakeCluster, operator: Reconciler
) -> None:
    await promoted_first(cluster, operator)
    before = [event["metadata"]["name"] for event in cluster.all("events")]
    second, client = await cluster.reconciler()
    for _ in range(3):
        await look(cluster, second)
    await second.close()
    await client.close()
    assert [event["metadata"]["name"] for event in cluster.all("events")] == before
