"""Kills the operator before and after every write of a rollout; the end must be that of an undisturbed one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from api_server import Fault
from fake_cluster import FakeCluster, look

from rampway_operator.cluster import client as client_module
from rampway_operator.errors import ApiError

OLD, NEW = "engine:1", "engine:2"
REPEATED = frozenset({"PodsLost", "PodsReady"})
"""A restarted operator asks every new pod for a token once more before it counts as ready."""
CANARY = {
    "strategy": {
        "canary": {
            "steps": [
                {"setWeight": 50},
                {"analysis": {"objectives": ["hit-rate"]}},
                {"setWeight": 100},
            ],
            "bake": "10s",
            "scaleDownDelay": "5s",
        }
    }
}


@pytest.fixture(autouse=True)
def _quiet_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    monkeypatch.setattr(client_module, "READ_RETRY_SECONDS", ())


async def play(
    folder: Path, second: str, *, port: int = 0, fault: Fault | None = None
) -> FakeCluster:
    """A first deployment, then a second revision, until nothing is written any more."""
    async with FakeCluster(folder, port) as cluster:
        bad = cluster.behaviour("engine:bad")
        bad.check_exit, bad.check_message = 10, '{"v":1,"class":"BadRevision","failed":[]}'
        cluster.behaviour("engine:cold").hit_rate = 0.0
        cluster.faults = [fault] if fault else []
        operator, client = await cluster.reconciler()
        cluster.deploy(OLD)
        changed, quiet = False, 0
        for _ in range(600):
            writes = len(cluster.writes())
            try:
                await look(cluster, operator, requests=300)
            except ApiError:
                cluster.advance(1.0)
            if cluster.killed:
                await operator.close()
                await client.close()
                cluster.killed = False
                operator, client = await cluster.reconciler()
            quiet = quiet + 1 if len(cluster.writes()) == writes else 0
            idle = cluster.status.get("phase") == "Idle"
            if idle and not changed and cluster.status.get("stableRevision"):
                cluster.deploy(second, **CANARY)
                changed, quiet = True, 0
            elif idle and changed and quiet >= 3:
                break
        else:
            raise AssertionError(f"did not settle: {cluster.status}")
        await operator.close()
        await client.close()
        return cluster


def end_of(cluster: FakeCluster) -> dict[str, Any]:
    """What must not depend on where the operator was killed."""
    status = cluster.status
    rotating = [
        pod["spec"]["containers"][0]["image"]
        for pod in cluster.all("pods")
        if pod["metadata"]["labels"].get("rampway.dev/in-rotation") == "true"
    ]
    return {
        "phase": status["phase"],
        "stable": status["stableRevision"],
        "failed": [item["hash"] for item in status["failedRevisions"]],
        "history": [(e["number"], e["image"], e["outcome"]) for e in status["history"]],
        "replica sets": {
            r["metadata"]["name"]: r["spec"]["replicas"] for r in cluster.all("replicasets")
        },
        "services": [s["metadata"]["name"] for s in cluster.all("services")],
        "config maps": [c["metadata"]["name"] for c in cluster.all("configmaps")],
        "budget": [b["spec"]["selector"] for b in cluster.all("poddisruptionbudgets")],
        "rotating": sorted(rotating),
        "pods made": Counter(name.rsplit("-", 1)[0] for name in cluster.created),
        "events": Counter(
            e["reason"] for e in cluster.all("events") if e["reason"] not in REPEATED
        ),
    }


async def kill_at_writes(folder: Path, second: str, *, stride: int) -> None:
    reference = await play(folder, second)
    expected, total = end_of(reference), len(reference.writes())
    assert total > 15
    for index in range(0, total, stride):
        for after in (False, True):
            fault = Fault(503, "write", skip=index, after=after, kills=True)
            cluster = await play(folder, second, port=reference.engine_port, fault=fault)
            where = f"killed {'after' if after else 'before'} write {index}"
            assert end_of(cluster) == expected, where


@pytest.mark.parametrize("second", [NEW, "engine:cold", "engine:bad"])
async def test_given_a_kill_at_some_writes_when_restarted_then_the_end_is_the_same(
    tmp_path: Path, second: str
) -> None:
    await kill_at_writes(tmp_path, second, stride=15)


@pytest.mark.slow
@pytest.mark.parametrize("second", [NEW, "engine:cold", "engine:bad"])
async def test_given_a_kill_at_every_write_when_restarted_then_the_end_is_the_same(
    tmp_path: Path, second: str
) -> None:
    await kill_at_writes(tmp_path, second, stride=1)


FAULTS = [
    Fault(409, "write", times=3),
    Fault(409, "write", after=True),
    Fault(429, "write", times=3),
    Fault(503, "write", times=3),
    Fault(504, "write", after=True, times=2),
    Fault(500, "list", times=5),
    Fault(503, "get", times=5),
    Fault(403, "create", times=2),
    Fault(422, "patch", times=2),
    Fault(404, "patch"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f"{f.verb}-{f.status}-{f.after}")
async def test_given_a_fault_of_the_api_server_anywhere_when_it_passes_then_the_end_is_the_same(
    tmp_path: Path, fault: Fault
) -> None:
    reference = await play(tmp_path, "engine:bad")
    for skip in (3, 13):
        anew = replace(fault, skip=skip)
        cluster = await play(tmp_path, "engine:bad", port=reference.engine_port, fault=anew)
        assert end_of(cluster) == end_of(reference), f"after {skip} requests"
