"""SIGTERM again and again under load: no stream inside the deadline is cut."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest
from server_builders import serving

STREAMS = 16


@pytest.mark.parametrize("times", [10, pytest.param(200, marks=pytest.mark.slow)])
async def test_given_streams_when_sigterm_comes_at_any_moment_then_every_one_is_completed(
    times: int,
) -> None:
    rng = random.Random(20261130)
    flags = ("--device", "simulated:h200", "--simulated-speed", "4", "--drain-delay", "0.1")
    for _ in range(times):
        with serving(*flags) as server:
            begun = asyncio.Event()

            async def stream(tokens: int) -> str:
                body = {"prompt": "go on", "max_tokens": tokens, "ignore_eos": True, "stream": True}
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(server.url + "/v1/completions", json=body) as response,
                ):
                    begun.set()  # noqa: B023 - awaited in this turn
                    return await response.text()

            streams = [asyncio.create_task(stream(rng.randrange(20, 200))) for _ in range(STREAMS)]
            await begun.wait()
            await asyncio.sleep(rng.random() * 0.1)
            server.terminate()
            texts = await asyncio.gather(*streams)
            assert all(text.endswith("data: [DONE]\n\n") for text in texts)
            assert await asyncio.to_thread(server.process.wait, 60) == 0
