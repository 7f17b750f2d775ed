"""The operator's own HTTP endpoints: /livez, /readyz and /metrics.

It does not know what makes the process healthy; it asks the functions that it is given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

__all__ = ["HealthServer", "LoopLag"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4"
BEAT_SECONDS: Final = 1.0

Check = Callable[[], str]
"""Returns why the answer is no; empty when it is yes."""


@dataclass(slots=True)
class LoopLag:
    """For how many seconds the event loop has been late at worst, lately."""

    worst: float = 0.0

    async def watch(self) -> None:
        """Beats once a second for ever; a late beat shows until it has been forgotten in a minute."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(BEAT_SECONDS)
            late = max(0.0, loop.time() - before - BEAT_SECONDS)
            self.worst = max(late, self.worst * 0.95)


@dataclass(slots=True)
class HealthServer:
    """Serves the endpoints on all addresses of the pod."""

    port: int
    live: Check
    ready: Check
    metrics: Callable[[], bytes]
    _runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Begin to serve; returns the port. Raises OSError when the port is taken."""
        app = web.Application()
        app.router.add_get("/livez", lambda _: _answer(self.live()))
        app.router.add_get("/readyz", lambda _: _answer(self.ready()))
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, None, self.port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop serving."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self.metrics(), headers={"Content-Type": CONTENT_TYPE})


async def _answer(fault: str) -> web.Response:
    return web.Response(status=503 if fault else 200, text=f"{fault or 'ok'}\n")
