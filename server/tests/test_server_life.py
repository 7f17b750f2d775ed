"""How a server process begins and ends when things go wrong inside it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

import aiohttp
import pytest
from server_builders import ServerProcess, serving

BODY = {"prompt": "hello", "max_tokens": 4}
BROKEN_STEPS = """
from rampway_server.engine.simulated import SimulatedRunner
def run(self, batch): raise RuntimeError("device lost")
SimulatedRunner.run = run
"""
BROKEN_SCHEDULER = """
from rampway_server.engine.scheduler import Scheduler
def update(self, plan, result): raise RuntimeError("bug in the scheduler")
Scheduler.update = update
"""
SLOW_LOAD = """
import time
from rampway_server.engine.simulated import SimulatedRunner
def warm_up(self): time.sleep(600)
SimulatedRunner.warm_up = warm_up
"""
BROKEN_LOAD = """
from rampway_server.engine.simulated import SimulatedRunner
def warm_up(self): raise RuntimeError("kernel does not compile")
SimulatedRunner.warm_up = warm_up
"""


def complete(server: ServerProcess) -> tuple[int, str]:
    url = server.url + "/v1/completions"
    try:
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(BODY).encode()), timeout=10)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())["error"]["code"]
    return 200, ""


def test_given_a_device_that_fails_every_step_when_it_failed_thrice_then_the_process_ends_with_1() -> (
    None
):
    with serving(sabotage=BROKEN_STEPS) as server:
        answers = [complete(server) for _ in range(3)]
        assert answers[:2] == [(500, "engine_error")] * 2
        assert answers[2] == (500, "engine_dead")
        assert server.process.wait(30) == 1
        assert "device lost" in server.wait_for("engine_dead")["error"]


async def test_given_a_bug_in_the_engine_when_streams_wait_then_all_get_an_error_and_it_ends_with_1() -> (
    None
):
    with serving(sabotage=BROKEN_SCHEDULER) as server:
        async with aiohttp.ClientSession() as session:

            async def ask() -> int:
                async with session.post(server.url + "/v1/completions", json=BODY) as response:
                    await response.read()
                    return response.status

            statuses = set(await asyncio.gather(*(ask() for _ in range(8))))
        # 500 for those it had begun, 503 for those that came when it was dead.
        assert 500 in statuses
        assert statuses <= {500, 503}
        assert await asyncio.to_thread(server.process.wait, 30) == 1


def test_given_a_model_that_loads_for_long_when_probed_then_live_but_not_ready_and_sigterm_ends_it() -> (
    None
):
    with serving(sabotage=SLOW_LOAD, ready=False) as server:
        assert server.get("/livez")["status"] == "ok"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            server.get("/readyz")
        assert complete(server) == (503, "starting")
        assert server.metrics()["rampway_ready"] == 0
        # 600 s of loading are left, and the default delay of 5 s: neither is waited for.
        server.terminate()
        assert server.process.wait(4) == 0


def test_given_a_model_that_cannot_be_warmed_up_when_served_then_the_process_ends_with_1() -> None:
    with serving(sabotage=BROKEN_LOAD, ready=False) as server:
        assert server.process.wait(30) == 1
        assert "kernel does not compile" in server.wait_for("failed")["error"]
