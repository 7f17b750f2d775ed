"""What the server says of itself."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from api_builders import FrontUnderTest, front

import rampway_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[FrontUnderTest]:
    async with front() as made:
        yield made


async def test_given_a_ready_server_when_probed_then_every_probe_says_so(
    server: FrontUnderTest,
) -> None:
    for path in ("/livez", "/readyz", "/health", "/ping", "/health_generate"):
        assert (await server.client.get(path)).status_code == 200, path
    # Our own probe is no traffic.
    assert server.outcomes()["ok"] == 0
    assert server.service.telemetry.prompt_tokens._value.get() == 0


async def test_given_an_engine_that_stands_still_when_probed_then_livez_says_so(
    server: FrontUnderTest,
) -> None:
    server.service.loaded.engine.heartbeat_age_seconds = lambda: 61.0
    assert (await server.client.get("/livez")).status_code == 503
    assert (await server.client.get("/readyz")).status_code == 503


async def test_given_a_device_with_long_steps_when_one_takes_long_then_it_is_not_taken_for_stuck() -> (
    None
):
    slow = ("--device", "simulated:a100", "--simulated-speed", "0.002")
    async with front(*slow) as server:
        longest = server.service.loaded.longest_step_seconds
        assert longest > 30
        server.service.loaded.engine.heartbeat_age_seconds = lambda: longest * 2
        assert (await server.client.get("/livez")).status_code == 200


async def test_given_a_probe_that_gets_no_token_when_time_is_over_then_503(
    server: FrontUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rampway_server.api.info.PROBE_SECONDS", 0.05)
    server.service.loaded.engine.submit = [].extend
    assert (await server.client.get("/health_generate")).status_code == 503
    assert server.service.loaded.bridge.unfinished == 0


async def test_given_traffic_when_info_is_read_then_it_is_true_now(server: FrontUnderTest) -> None:
    before = (await server.client.get("/server_info")).json()
    await server.post("/v1/completions", {"prompt": "x" * 100, "max_tokens": 4})
    after = (await server.client.get("/get_server_info")).json()
    assert before["pages"]["evictable"] == 0
    assert after["pages"]["evictable"] == 6
    assert after["status"] == "ready"
    assert after["cache_backend"] in {"rust", "python"}
    assert after["device"] == "simulated:instant"
    assert after["limits"]["max_total_num_tokens"] == (after["limits"]["num_pages"] - 1) * 16
    assert "api_key_files" not in after["settings"]
    model = (await server.client.get("/model_info")).json()
    assert model["simulated_model"] == "llama-3-8b"


async def test_given_a_prompt_or_a_chat_when_tokenized_then_it_counts_what_generation_sees(
    server: FrontUnderTest,
) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "hé"}]}]
    tokens = (await server.post("/tokenize", {"messages": messages})).json()
    chat = await server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    assert tokens["count"] == chat.json()["usage"]["prompt_tokens"] == len(tokens["tokens"])
    text = (await server.post("/detokenize", {"tokens": tokens["tokens"]})).json()["prompt"]
    assert text == "<user>hé\n<assistant>"


async def test_given_a_long_prompt_when_tokenized_off_the_loop_then_it_is_the_same(
    server: FrontUnderTest,
) -> None:
    prompts = ["x" * 5000, "y" * 10]
    answers = await asyncio.gather(*(server.post("/tokenize", {"prompt": p}) for p in prompts))
    assert [a.json()["count"] for a in answers] == [5000, 10]


def test_given_the_package_when_its_version_is_read_then_pyproject_agrees() -> None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == rampway_server.__version__
