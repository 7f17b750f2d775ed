"""SIGTERM against real processes: nobody who keeps connections and never retries loses a request."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx
import pytest
from server_builders import serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server_builders import ServerProcess

# A device that takes time, but little: answers of 20 tokens last about 60 ms.
DEVICE = ("--device", "simulated:h200", "--simulated-speed", "2")
BODY: dict[str, Any] = {"prompt": "count with me", "max_tokens": 20, "ignore_eos": True}


async def until_refused(one: Callable[[int], Awaitable[None]], workers: int) -> tuple[int, list]:
    """Call `one` in a closed loop in each worker until the listener is gone; return what failed."""
    served = 0
    failures: list[BaseException] = []

    async def work(number: int) -> None:
        nonlocal served
        while True:
            try:
                await one(number)
                served += 1
            except (aiohttp.ClientConnectorError, httpx.ConnectError):
                # A new connection was refused: by then no router sends anybody here.
                return
            except Exception as error:
                failures.append(error)
                return

    await asyncio.gather(*(work(number) for number in range(workers)))
    return served, failures


async def drained(server: ServerProcess) -> int:
    return await asyncio.to_thread(server.process.wait, 60)


async def terminate_soon(server: ServerProcess, seconds: float) -> None:
    await asyncio.sleep(seconds)
    server.terminate()


@pytest.mark.parametrize("stream", [False, True])
async def test_given_pooled_aiohttp_clients_when_the_server_drains_then_no_request_is_lost(
    stream: bool,
) -> None:
    with serving(*DEVICE, "--drain-delay", "1") as server:
        async with aiohttp.ClientSession() as session:

            async def one(number: int) -> None:
                # Some are busy all the time, some leave their connection idle in between.
                async with session.post(
                    server.url + "/v1/completions", json={**BODY, "stream": stream}
                ) as response:
                    text = await response.text()
                assert response.status == 200, text
                if stream:
                    assert text.endswith("data: [DONE]\n\n"), text
                if number % 3 == 0:
                    await asyncio.sleep(0.05 * (number % 5))

            ended = asyncio.create_task(terminate_soon(server, 0.5))
            served, failures = await until_refused(one, workers=24)
            await ended
        assert failures == []
        assert served > 100
        assert await drained(server) == 0


async def test_given_a_pooled_httpx_client_when_the_server_drains_then_no_request_is_lost() -> None:
    with serving(*DEVICE, "--drain-delay", "1") as server:
        limits = httpx.Limits(max_keepalive_connections=16, keepalive_expiry=60)
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:

            async def one(number: int) -> None:
                response = await client.post(server.url + "/v1/completions", json=BODY)
                assert response.status_code == 200, response.text
                await asyncio.sleep(0.03 * (number % 4))

            ended = asyncio.create_task(terminate_soon(server, 0.5))
            served, failures = await until_refused(one, workers=8)
            await ended
        assert failures == []
        assert served > 30
        assert await drained(server) == 0


async def test_given_a_drain_when_it_begins_then_readiness_falls_and_requests_are_still_served() -> (
    None
):
    with serving("--drain-delay", "3") as server:
        async with httpx.AsyncClient(base_url=server.url) as client:
            assert (await client.get("/readyz")).status_code == 200
            server.terminate()
            await asyncio.to_thread(server.wait_for, "draining")
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
            assert (await client.get("/livez")).status_code == 200
            served = await client.post("/v1/completions", json=BODY)
            assert (served.status_code, served.headers["connection"]) == (200, "close")
            missing = await client.get("/nothing-here")
            assert (missing.status_code, missing.headers["connection"]) == (404, "close")
        assert await drained(server) == 0


async def test_given_a_stream_that_outlasts_the_delay_when_draining_then_it_is_completed() -> None:
    # 400 tokens at about 5 ms: two seconds, while the listener closes after none.
    with serving("--device", "simulated:h100", "--drain-delay", "0") as server:
        async with aiohttp.ClientSession() as session:
            body = {**BODY, "max_tokens": 400, "stream": True}
            body["stream_options"] = {"include_usage": True}
            async with session.post(server.url + "/v1/completions", json=body) as response:
                await response.content.readline()
                server.terminate()
                text = await response.text()
        assert text.endswith("data: [DONE]\n\n")
        assert '"completion_tokens":400' in text
        assert await drained(server) == 0


async def test_given_the_drain_deadline_when_streams_still_run_then_they_end_with_an_error_event() -> (
    None
):
    with serving(
        "--device", "simulated:h100", "--drain-delay", "0", "--drain-timeout", "0.5"
    ) as server:
        async with aiohttp.ClientSession() as session:
            body = {**BODY, "max_tokens": 4000}

            async def whole() -> tuple[int, str]:
                async with session.post(server.url + "/v1/completions", json=body) as response:
                    assert response.headers["retry-after"] == "1"
                    return response.status, (await response.json())["error"]["code"]

            waiting = asyncio.create_task(whole())
            streamed = {**body, "stream": True}
            async with session.post(server.url + "/v1/completions", json=streamed) as response:
                await response.content.readline()
                began = time.monotonic()
                server.terminate()
                text = await response.text()
            assert await waiting == (503, "draining")
        last = text.strip().splitlines()[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "draining"
        assert await drained(server) == 0
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_given_a_second_signal_when_draining_then_the_server_ends_now(second: int) -> None:
    with serving(*DEVICE, "--drain-delay", "600", "--drain-timeout", "600") as server:
        async with aiohttp.ClientSession() as session:
            body = {**BODY, "max_tokens": 4000, "stream": True}
            async with session.post(server.url + "/v1/completions", json=body) as response:
                await response.content.readline()
                server.terminate()
                await asyncio.to_thread(server.wait_for, "draining")
                server.process.send_signal(second)
                assert await drained(server) == 0


async def test_given_ctrl_c_when_nothing_runs_then_there_is_no_delay() -> None:
    with serving("--drain-delay", "600") as server:
        server.process.send_signal(signal.SIGINT)
        assert await drained(server) == 0


async def test_given_silent_connections_when_draining_then_they_are_closed_and_do_not_hold_it() -> (
    None
):
    with (
        serving("--drain-delay", "0", "--drain-timeout", "30") as server,
        contextlib.ExitStack() as stack,
    ):
        sockets = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            for _ in range(20)
        ]
        began = time.monotonic()
        server.terminate()
        assert await drained(server) == 0
        assert time.monotonic() - began < 10
        assert all(sock.recv(1) == b"" for sock in sockets)
