"""How check reports are written: those of other nodes stay until the API server has no room for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from api_server import ApiServer, Fault
from world_builders import world

from rampway_operator.cluster.apply import Applier
from rampway_operator.cluster.client import connect
from rampway_operator.cluster.memory import Memory
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.smoke import SmokeTests
from rampway_operator.core.actions import PatchReport
from rampway_operator.errors import Refused

NAME = "chat-aaaaaaaaaa.report"
PATCH = PatchReport(NAME, {"n2": "new"}, "digest-2")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path) as started:
        metadata = {"name": NAME, "annotations": {"rampway.dev/report": "digest-1"}}
        started.put("configmaps", {"metadata": metadata, "data": {"n1": "old", "n2": "old"}})
        yield started


@pytest.fixture
async def applier(server: ApiServer) -> AsyncIterator[Applier]:
    client, http = await connect(kubeconfig=str(server.kubeconfig)), PodHttp()
    w = world()
    observed = replace(w.observe(), namespace="prod")
    yield Applier(client, http, SmokeTests(http), Memory(), w.parsed, observed, lambda: None)
    await http.close()
    await client.close()


def held(server: ApiServer) -> tuple[dict[str, str], str]:
    found = server.get("configmaps", NAME)
    assert found is not None
    return found["data"], found["metadata"]["annotations"]["rampway.dev/report"]


async def test_given_reports_of_other_nodes_when_one_is_added_then_they_stay(
    server: ApiServer, applier: Applier
) -> None:
    await applier.apply([PATCH])
    assert held(server) == ({"n1": "old", "n2": "new"}, "digest-2")


async def test_given_no_room_when_one_is_added_then_only_what_is_in_sight_is_kept(
    server: ApiServer, applier: Applier
) -> None:
    server.faults = [Fault(422, "patch", "configmaps")]
    await applier.apply([PATCH])
    assert held(server) == ({"n2": "new"}, "digest-2")


async def test_given_no_right_to_write_when_one_is_added_then_refused_and_nothing_changes(
    server: ApiServer, applier: Applier
) -> None:
    server.faults = [Fault(403, "patch", "configmaps", times=9)]
    with pytest.raises(Refused):
        await applier.apply([PATCH])
    assert held(server) == ({"n1": "old", "n2": "old"}, "digest-1")
