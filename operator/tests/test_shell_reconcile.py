from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from fake_cluster import KEY, FakeCluster, background_work, look, until

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
    bad.check_exit, bad.check_message = 10, '{"v":1,"class":"BadRevision","failed":[{"check":"glibcxx"}]}'
    cluster.deploy(NEW, **SHORT)
    looks = await until(cluster, operator, "RollingBack")
    assert looks < 10
    await until(cluster, operator, "Idle")
    assert outcome(cluster)[0] == "BadRevision"
    events = [e for e in cluster.all("events") if e["reason"] == "BadRevision"]
    assert [e["type"] for e in events] == ["Warning"]
