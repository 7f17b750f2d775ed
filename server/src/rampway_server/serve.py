"""The life of the server process: listen, load, serve, drain, exit status.

It knows no route and no step; signals, sockets and the end of everything are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from rampway_server import __version__
from rampway_server.api.app import MetricsApp, build_app
from rampway_server.api.keys import Keys
from rampway_server.api.service import Life, Service, shutting_down
from rampway_server.api.serving import HttpServer, listen
from rampway_server.assembly import connect, prepare
from rampway_server.errors import RequestError
from rampway_server.telemetry import Telemetry

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from rampway_server.settings import ServerSettings

__all__ = ["run_server"]

T = TypeVar("T")

FLUSH_SECONDS = 1.0
"""How long cut answers get to reach their clients."""
EXIT_ENGINE_DEAD = 1

log = structlog.get_logger(__name__)


def run_server(settings: ServerSettings) -> int:
    """Serve until SIGTERM or the engine's death; return the exit status.

    Raises UsageError, before anything is served, for keys that cannot be read, ports that cannot
    be had, and models that cannot be loaded.
    """
    keys = Keys.read(settings.api_key_files, settings.admin_key_file)
    sockets = (
        listen(settings.host, settings.port, "--port"),
        listen(settings.host, settings.metrics_port, "--metrics-port"),
    )
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_Server(settings, keys).run(*sockets))
    if any(thread.name in {"engine", "device", "load"} for thread in threading.enumerate()):
        # A load or a step that still runs: tearing the interpreter down under it may crash.
        sys.stderr.flush()
        os._exit(status)
    return status


class _Server:
    """One process's servers and signals."""

    def __init__(self, settings: ServerSettings, keys: Keys) -> None:
        self._settings = settings
        self._telemetry = Telemetry(settings.metrics_dialect, settings.served_model_name)
        self._service = Service(settings, self._telemetry, keys)
        self._stop = asyncio.Event()
        self._now = asyncio.Event()
        self._dead = asyncio.Event()
        self._hurry = False

    async def run(self, api_socket: socket.socket, metrics_socket: socket.socket) -> int:
        """Serve, drain, and return the exit status."""
        settings = self._settings
        revision = [("x-rampway-revision", settings.revision)] if settings.revision else []
        api = HttpServer(
            build_app(self._service),
            api_socket,
            max_connections=settings.max_connections,
            headers=revision,
        )
        metrics = HttpServer(MetricsApp(self._telemetry), metrics_socket, max_connections=64)
        self._telemetry.watch(self._service.heartbeat_age_seconds, lambda: self._service.is_ready)
        self._own_signals()
        await api.start()
        await metrics.start()
        log.info("listening", port=api.port, metrics_port=metrics.port, host=settings.host)
        if await self._load():
            await self._first(self._stop, self._dead)
        status = await self._end(api)
        await metrics.stop_listening()
        metrics.abort()
        with contextlib.suppress(RequestError):
            await asyncio.to_thread(self._service.loaded.engine.stop, FLUSH_SECONDS)
        self._service.close()
        return status

    async def _load(self) -> bool:
        """Load and start the engine; False when SIGTERM came first."""
        loop = asyncio.get_running_loop()
        loading = _in_thread(lambda: prepare(self._settings))
        stopping: asyncio.Future[bool] = asyncio.ensure_future(self._stop.wait())
        futures: set[asyncio.Future[Any]] = {loading, stopping}
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            return False
        loaded = connect(self._settings, loading.result(), loop, self._telemetry)
        self._telemetry.set_build(
            version=__version__,
            cache_backend=loaded.cache_backend,
            device=loaded.device,
        )

        def on_death(error: BaseException) -> None:
            loop.call_soon_threadsafe(self._die, error)

        loaded.engine.start(on_death)
        # What exists now stays: the collector need not walk it again and again.
        gc.collect()
        gc.freeze()
        self._service.attach(loaded)
        log.info(
            "ready",
            model=self._service.model_id,
            device=loaded.device,
            cache_backend=loaded.cache_backend,
            num_pages=loaded.limits.num_pages,
            context_length=loaded.context_length,
        )
        return True

    def _die(self, error: BaseException) -> None:
        log.error("engine_dead", error=repr(error), exc_info=error)
        self._service.life = Life.DEAD
        self._dead.set()

    async def _end(self, api: HttpServer) -> int:
        """Drain, or cut everything when the engine is dead; return the exit status."""
        if self._dead.is_set():
            await self._cut(
                api,
                RequestError(
                    "the engine has failed", status=500, kind="server_error", code="engine_dead"
                ),
            )
            return EXIT_ENGINE_DEAD
        settings = self._settings
        # Nobody was sent here before it was ready.
        skip = self._hurry or self._service.life is Life.STARTING
        delay = 0.0 if skip else settings.drain_delay_seconds
        log.info("draining", delay_seconds=delay, timeout_seconds=settings.drain_timeout_seconds)
        self._service.life = Life.DRAINING
        api.announce_end()
        # Endpoints lag behind readiness: who still comes is served, on a connection that closes.
        await self._first(self._now, self._dead, timeout_seconds=delay)
        await api.stop_listening()
        ended = await api.finish(self._now, settings.drain_timeout_seconds)
        if not ended:
            self._service.life = Life.REFUSING
            await self._cut(api, shutting_down(Life.REFUSING))
        log.info("stopped", complete=ended)
        return EXIT_ENGINE_DEAD if self._dead.is_set() else 0

    async def _cut(self, api: HttpServer, error: RequestError) -> None:
        """End every answer with an error the client can read, then close."""
        api.announce_end()
        await api.stop_listening()
        with contextlib.suppress(RequestError):
            self._service.loaded.bridge.fail_all(error)
        await api.finish(asyncio.Event(), FLUSH_SECONDS)
        api.abort()

    def _own_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_signal, False)  # noqa: FBT003
        loop.add_signal_handler(signal.SIGINT, self._on_signal, True)  # noqa: FBT003

    def _on_signal(self, hurry: bool) -> None:  # noqa: FBT001 - add_signal_handler passes it on
        """First SIGTERM: drain. Ctrl-C: drain without the delay. Any second one: now."""
        if self._stop.is_set():
            self._now.set()
        self._hurry = hurry
        self._stop.set()

    @staticmethod
    async def _first(*events: asyncio.Event, timeout_seconds: float | None = None) -> None:
        """Wait for any of the events, or for the time to pass."""
        tasks = [asyncio.create_task(event.wait()) for event in events]
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run `work` in a daemon thread: SIGTERM during a long load must not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, result, None)

    threading.Thread(target=run, name="load", daemon=True).start()
    return future
