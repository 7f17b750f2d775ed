"""An engine pod on loopback: metrics, models, completions, and everything a hostile one may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class EnginePod:
    """Start it with `async with`. Caches by prompt text: the second time a prompt is seen it hits."""

    def __init__(self, ip: str = "127.0.0.1") -> None:
        self.ip = ip
        self.fixed_port = 0
        self.metrics_text = ""
        self.metrics_handler: Handler | None = None
        self.models: Any = {"data": [{"id": "tiny"}]}
        self.status = 200
        self.usage = True
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.seen: set[str] = set()
        self.cached = 0
        self.prompt = 0
        self.at_once = 0
        self.most_at_once = 0

    async def __aenter__(self) -> EnginePod:
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.ip, self.fixed_port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if self.metrics_handler is not None:
            return await self.metrics_handler(request)
        counted = f"rampway_prompt_tokens_total {self.prompt}\nrampway_cached_tokens_total {self.cached}\n"
        return web.Response(text=self.metrics_text or counted)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(self.models)

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.requests.append((request.path, body))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.status != 200:
            return web.Response(status=self.status)
        text = str(body.get("prompt") or body.get("messages"))
        tokens, hit = 100, text in self.seen
        self.seen.add(text)
        self.prompt += tokens
        self.cached += 80 if hit else 0
        usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 1}
        if self.usage:
            usage["prompt_tokens_details"] = {"cached_tokens": 80 if hit else 0}
        return web.json_response({"choices": [{"text": "x"}], "usage": usage})
