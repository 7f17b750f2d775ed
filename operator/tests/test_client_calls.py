from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from api_server import ApiServer, Fault

from rampway_operator.cluster import client as client_module
from rampway_operator.cluster.client import Client, connect, context_namespace
from rampway_operator.cluster.resources import CONFIG_MAPS, HTTP_ROUTES, INFERENCE_DEPLOYMENTS, PODS
from rampway_operator.errors import (
    ApiError,
    Conflict,
    NotFound,
    Refused,
    Unauthorized,
    Unavailable,
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path) as started:
        yield started


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    connected = await connect(kubeconfig=str(server.kubeconfig))
    yield connected
    await connected.close()


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_given_a_stale_resource_version_when_patching_then_conflict_and_nothing_changes(
    server: ApiServer, client: Client
) -> None:
    server.put("configmaps", config_map("a", k="1"))
    body = {"metadata": {"resourceVersion": "999"}, "data": {"k": "2"}}
    with pytest.raises(Conflict):
        await client.merge_patch(CONFIG_MAPS, "prod", "a", body)
    found = server.get("configmaps", "a")
    assert found is not None
    assert found["data"] == {"k": "1"}


async def test_given_another_object_of_the_same_name_when_deleting_by_uid_then_it_stays(
    server: ApiServer, client: Client
) -> None:
    server.put("configmaps", config_map("a"))
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "prod", "a", uid="of-the-former-one")
    assert server.get("configmaps", "a") is not None


async def test_given_an_object_that_is_gone_when_deleting_then_it_counts_as_deleted(
    client: Client,
) -> None:
    await client.delete(CONFIG_MAPS, "prod", "a", uid="x")


async def test_given_more_objects_than_a_page_when_listing_then_all_come(
    server: ApiServer, client: Client
) -> None:
    for number in range(501):
        server.put("configmaps", config_map(f"c{number:04}"))
    found = await client.list_objects(CONFIG_MAPS, "prod", metadata_only=True)
    assert [obj["metadata"]["name"] for obj in found] == [f"c{n:04}" for n in range(501)]
    assert sum(verb == "list" for verb, _ in server.requests) == 3


async def test_given_a_continue_token_that_expires_when_listing_then_the_list_begins_again(
    server: ApiServer, client: Client
) -> None:
    for number in range(300):
        server.put("configmaps", config_map(f"c{number:04}"))
    server.faults = [Fault(410, "list", times=1)]
    assert len(await client.list_objects(CONFIG_MAPS, "prod")) == 300


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Refused),
        (403, Refused),
        (422, Refused),
        (404, NotFound),
        (409, Conflict),
        (429, Unavailable),
        (503, Unavailable),
    ],
)
async def test_given_a_failing_write_when_answered_then_the_error_says_what_to_do_and_it_is_sent_once(
    server: ApiServer, client: Client, status: int, kind: type[ApiError]
) -> None:
    server.faults = [Fault(status, "create", times=9, headers={"Retry-After": "7"})]
    with pytest.raises(kind) as caught:
        await client.create(CONFIG_MAPS, "prod", config_map("a"))
    assert caught.value.status == status
    assert len(server.writes()) == 1
    if isinstance(caught.value, Unavailable):
        assert caught.value.retry_after == 7.0


async def test_given_a_server_that_recovers_when_reading_then_the_read_is_repeated(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "READ_RETRY_SECONDS", (0.0, 0.0, 0.0))
    server.put("configmaps", config_map("a", k="1"))
    server.faults = [Fault(503, "get", times=3)]
    assert (await client.get(CONFIG_MAPS, "prod", "a"))["data"] == {"k": "1"}


async def test_given_a_server_that_stays_down_when_reading_then_unavailable(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "READ_RETRY_SECONDS", (0.0, 0.0, 0.0))
    server.faults = [Fault(500, "get", times=99)]
    with pytest.raises(Unavailable):
        await client.get(CONFIG_MAPS, "prod", "a")


async def test_given_a_stalled_server_when_writing_then_unavailable_within_the_timeout(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "REQUEST_SECONDS", 0.2)
    server.faults = [Fault(500, "create", stall=1.0)]
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"no answer in 0\.2 s"):
        await client.create(CONFIG_MAPS, "prod", config_map("a"))
    assert time.monotonic() - began < 0.9


async def test_given_a_token_that_was_rotated_when_refused_then_it_is_read_again(
    server: ApiServer, client: Client
) -> None:
    server.put("configmaps", config_map("a"))
    await client.get(CONFIG_MAPS, "prod", "a")
    server.token = "rotated"
    server.write_kubeconfig(token="rotated")
    many = (client.get(CONFIG_MAPS, "prod", "a") for _ in range(10))
    assert len(await asyncio.gather(*many)) == 10


async def test_given_a_token_that_is_not_valid_when_calling_then_unauthorized(
    server: ApiServer, client: Client
) -> None:
    server.token = "another"
    with pytest.raises(Unauthorized):
        await client.get(CONFIG_MAPS, "prod", "a")


async def test_given_no_server_when_reading_then_unavailable(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "READ_RETRY_SECONDS", (0.0,))
    server.url = "http://127.0.0.1:9"
    server.write_kubeconfig()
    connected = await connect(kubeconfig=str(server.kubeconfig))
    with pytest.raises(Unavailable):
        await connected.get(PODS, "prod", "a")
    await connected.close()


async def test_given_proxy_variables_when_calling_then_they_are_ignored(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    connected = await connect(kubeconfig=str(server.kubeconfig))
    assert await connected.list_objects(INFERENCE_DEPLOYMENTS, "prod") == []
    await connected.close()


@pytest.mark.parametrize(
    "content", ["", "x", "[]", "a: b", "clusters: 3", "{", "\x00", "contexts: [{}]"]
)
async def test_given_a_file_that_is_no_kubeconfig_when_logging_in_then_one_clear_error(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "broken"
    path.write_text(content)
    with pytest.raises(ApiError):
        await connect(kubeconfig=str(path))
    with pytest.raises(ApiError):
        context_namespace(str(path))


async def test_given_a_kubeconfig_when_asked_for_the_namespace_then_the_context_says_it(
    server: ApiServer,
) -> None:
    server.write_kubeconfig(namespace="team-a")
    assert context_namespace(str(server.kubeconfig)) == "team-a"
    with pytest.raises(ApiError, match="nope"):
        await connect(kubeconfig=str(server.kubeconfig), context="nope")


async def test_given_writes_when_counted_then_by_verb_and_kind(
    server: ApiServer, client: Client
) -> None:
    await client.create(CONFIG_MAPS, "prod", config_map("a"))
    await client.merge_patch(CONFIG_MAPS, "prod", "a", {"data": {"k": "v"}})
    await client.get(CONFIG_MAPS, "prod", "a")
    assert dict(client.writes) == {("create", "configmaps"): 1, ("patch", "configmaps"): 1}


async def test_given_server_side_apply_when_repeated_then_the_object_is_not_written_again(
    server: ApiServer, client: Client
) -> None:
    made = await client.apply(HTTP_ROUTES, "prod", "a", route("a"), force=False)
    body = route("a", uid=made["metadata"]["uid"])
    again = await client.apply(HTTP_ROUTES, "prod", "a", body, force=True)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_given_a_strangers_object_when_applied_as_a_new_one_then_conflict_and_it_stays(
    server: ApiServer, client: Client
) -> None:
    server.put("httproutes", {"metadata": {"name": "a"}, "spec": {"rules": ["theirs"]}})
    with pytest.raises(Conflict):
        await client.apply(HTTP_ROUTES, "prod", "a", route("a"), force=False)
    with pytest.raises(Conflict):
        await client.apply(HTTP_ROUTES, "prod", "a", route("a", uid="of-ours"), force=True)
    found = server.get("httproutes", "a")
    assert found is not None
    assert found["spec"] == {"rules": ["theirs"]}


def route(name: str, **metadata: str) -> dict[str, object]:
    return {"metadata": {"name": name, **metadata}, "spec": {"rules": ["ours"]}}
