"""Clients that leave at any moment: what they held is free within a step, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from typing import TYPE_CHECKING

import aiohttp
import pytest
from server_builders import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from server_builders import ServerProcess

LONG = {"prompt": "and so on " * 30, "max_tokens": 4000, "ignore_eos": True}
FREE_SECONDS = 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ("--max-num-seqs", "16", "--max-num-batched-tokens", "256")
    with serving("--device", "simulated:h100", "--simulated-model", "llama-3-8b", *flags) as made:
        yield made


def raw_request(body: dict[str, object]) -> bytes:
    payload = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


async def nothing_is_held(server: ServerProcess, within_seconds: float) -> None:
    """Wait until the engine holds nothing, at most this long."""
    deadline = time.monotonic() + within_seconds
    while True:
        info = await asyncio.to_thread(server.get, "/server_info")
        pages = info["pages"]
        held = (info["unfinished_requests"], pages["handles"], pages["owned"], pages["protected"])
        if held == (0, 0, 0, 0):
            assert pages["free"] + pages["evictable"] + pages["reserved"] == pages["total"]
            return
        assert time.monotonic() < deadline, held
        await asyncio.sleep(0.02)


async def until_metric(server: ServerProcess, name: str, value: float) -> None:
    deadline = time.monotonic() + 10
    while True:
        metrics = await asyncio.to_thread(server.metrics)
        if metrics[name] == value:
            return
        assert time.monotonic() < deadline, metrics[name]
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("abrupt", [False, True])
async def test_given_a_running_request_when_the_client_leaves_then_its_pages_are_free_within_a_second(
    server: ServerProcess, stream: bool, abrupt: bool
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw_request({**LONG, "stream": stream}))
    if stream:
        await reader.readuntil(b'"text"')
    else:
        await asyncio.sleep(0.1)
    if abrupt:
        writer.transport.abort()
    else:
        writer.close()
    await nothing_is_held(server, FREE_SECONDS)
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_given_a_queued_request_when_the_client_leaves_then_it_never_runs(
    server: ServerProcess,
) -> None:
    before = await asyncio.to_thread(server.metrics)
    async with aiohttp.ClientSession() as session:

        def post() -> asyncio.Task[aiohttp.ClientResponse]:
            call = session.post(server.url + "/v1/completions", json=LONG)
            return asyncio.ensure_future(call)

        running = [post() for _ in range(16)]
        await until_metric(server, "rampway_requests_running", 16)
        queued = [post() for _ in range(24)]
        await until_metric(server, "rampway_requests_waiting", 24)
        # The queued ones leave first, so that none of them gets a free place.
        for part in (queued, running):
            for call in part:
                call.cancel()
            await asyncio.gather(*part, return_exceptions=True)
            await until_metric(server, "rampway_requests_waiting", 0)
    await nothing_is_held(server, FREE_SECONDS)
    after = await asyncio.to_thread(server.metrics)
    aborted = 'rampway_requests_total{outcome="aborted"}'
    assert after[aborted] - before[aborted] == 40
    started = after["rampway_queue_seconds_count"] - before["rampway_queue_seconds_count"]
    assert started == 16
    assert after["rampway_requests_running"] == 0


@pytest.mark.parametrize("times", [200, pytest.param(10_000, marks=pytest.mark.slow)])
async def test_given_random_disconnects_when_all_have_left_then_nothing_leaked(
    server: ServerProcess, times: int
) -> None:
    rng = random.Random(20261130)

    async def one() -> None:
        body = {
            "prompt": "shared beginning " * rng.randrange(1, 40),
            "max_tokens": rng.randrange(1, 400),
            "stream": rng.random() < 0.7,
            "n": rng.choice([1, 1, 1, 3]),
        }
        raw = raw_request(body)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        # Sometimes in the middle of the request itself.
        writer.write(raw if rng.random() < 0.8 else raw[: rng.randrange(len(raw))])
        with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(rng.random() * 0.3):
                await reader.readexactly(rng.randrange(1, 4000))
        writer.transport.abort()

    for _ in range(times // 20):
        await asyncio.gather(*(one() for _ in range(20)))
    await nothing_is_held(server, FREE_SECONDS)
    served = await asyncio.to_thread(server.get, "/health_generate")
    assert served["status"] == "ok"


async def test_given_disconnects_when_counted_then_they_are_not_errors(
    server: ServerProcess,
) -> None:
    metrics = await asyncio.to_thread(server.metrics)
    assert metrics['rampway_requests_total{outcome="error"}'] == 0
    assert metrics['rampway_requests_total{outcome="aborted"}'] > 0
