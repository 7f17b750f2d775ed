"""The whole front in this process: real settings, engine thread and device, no socket."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx

from rampway_server.api.app import build_app
from rampway_server.api.keys import Keys
from rampway_server.api.service import Service
from rampway_server.assembly import connect, prepare
from rampway_server.flags import build_parser
from rampway_server.settings import parse_serve
from rampway_server.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rampway_server.settings import ServerSettings


def settings_of(*args: str, env: dict[str, str] | None = None) -> ServerSettings:
    device = () if "--device" in args else ("--device", "simulated:instant")
    return parse_serve(build_parser().parse_args(["serve", *device, *args]), env or {})


@dataclass
class FrontUnderTest:
    service: Service
    client: httpx.AsyncClient

    async def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return await self.client.post(path, json=body, **options)

    def outcomes(self) -> dict[str, float]:
        return {
            name: child._value.get() for name, child in self.service.telemetry._outcomes.items()
        }


@contextlib.asynccontextmanager
async def front(*args: str, loaded: bool = True) -> AsyncIterator[FrontUnderTest]:
    """Yield a client of the application; with `loaded=False` it is still starting."""
    settings = settings_of(*args)
    keys = Keys.read(settings.api_key_files, settings.admin_key_file)
    service = Service(settings, Telemetry(), keys)
    transport = httpx.ASGITransport(build_app(service))
    engine = None
    if loaded:
        model = connect(settings, prepare(settings), asyncio.get_running_loop(), service.telemetry)
        engine = model.engine
        engine.start(lambda _error: None)
        service.attach(model)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        yield FrontUnderTest(service, client)
    if engine is not None:
        await asyncio.to_thread(engine.stop, 10)
    service.close()
