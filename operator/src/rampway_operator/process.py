"""One operator process from start to end: log in, stand for election, lead, and hand over when told to stop.

It does not know how objects are looked at. Losing the Lease ends the process at once: what it was about
to write may already be another's to decide.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from rampway_operator.cluster.audit import WatchAudit
from rampway_operator.cluster.client import Client, connect
from rampway_operator.cluster.lease import Election
from rampway_operator.cluster.prometheus import Prometheus
from rampway_operator.cluster.resources import INFERENCE_DEPLOYMENTS
from rampway_operator.errors import ApiError, NotFound, Unavailable
from rampway_operator.handlers import Watcher
from rampway_operator.health import HealthServer, LoopLag
from rampway_operator.queue import Key, WorkQueue
from rampway_operator.reconcile import Reconciler
from rampway_operator.settings import Settings
from rampway_operator.telemetry import Telemetry

__all__ = ["run"]

CRD_SECONDS: Final = 60.0
CRD_RETRY_SECONDS: Final = 2.0
TICK_SECONDS: Final = 10.0
"""Longest wait for looks in progress when stopping."""
LAG_LIMIT_SECONDS: Final = 5.0
LOOK_LIMIT_SECONDS: Final = 120.0
WATCHER_SECONDS: Final = 5.0
LOST_LEASE: Final = 1
WATCHES_ENDED: Final = 3

log = structlog.get_logger(__name__)


async def run(settings: Settings) -> int:
    """The exit code: 0 when stopped by a signal, 1 when it cannot start, 3 when the watches ended."""
    telemetry = Telemetry()
    client = await connect(kubeconfig=settings.kubeconfig, on_write=telemetry.write_sent)
    try:
        return await _Operator(settings, client, telemetry).run()
    finally:
        await client.close()


async def _wait_for_crd(client: Client, settings: Settings) -> None:
    """Returns once the API is served; raises ApiError when a minute of answers says that it is not.

    An API server that does not answer is waited for as long as it takes: to end now would only make the
    kubelet start this process later and later.
    """
    namespace = settings.namespaces[0] if settings.namespaces else ""
    missing_looks = 0
    while True:
        try:
            await client.list_objects(INFERENCE_DEPLOYMENTS, namespace, metadata_only=True)
        except NotFound as error:
            missing_looks += 1
            if missing_looks * CRD_RETRY_SECONDS > CRD_SECONDS:
                raise ApiError(
                    "the API server does not serve inferencedeployments.rampway.dev/v1alpha1; "
                    "install the CRD (kubectl apply --server-side -f crds/)"
                ) from error
            log.warning("waiting for the CRD")
        except Unavailable as error:
            log.warning("waiting for the API server", error=str(error))
        else:
            return
        await asyncio.sleep(CRD_RETRY_SECONDS)


@dataclass(frozen=True, slots=True)
class _Parts:
    queue: WorkQueue
    reconciler: Reconciler
    audit: WatchAudit
    election: Election
    health: HealthServer
    watcher: Watcher


@dataclass(slots=True)
class _Operator:
    settings: Settings
    client: Client
    telemetry: Telemetry
    _stop: asyncio.Event = field(default_factory=asyncio.Event)
    _lag: LoopLag = field(default_factory=LoopLag)

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        parts = self._parts(loop)
        port = await parts.health.start()
        log.info("started", port=port, namespaces=self.settings.namespaces or "all")
        background = [
            asyncio.create_task(self._lag.watch(), name="loop lag"),
            asyncio.create_task(self._serve(parts), name="serve"),
        ]
        try:
            await self._first_of(background)
            log.info("stopping")
            async with asyncio.timeout(TICK_SECONDS):
                await parts.queue.close()
        except TimeoutError:
            log.warning("a look did not end in time", seconds=TICK_SECONDS)
        finally:
            await self._shut_down(parts, background)
        return self._exit_code(parts)

    def _parts(self, loop: asyncio.AbstractEventLoop) -> _Parts:
        def wake(key: Key) -> None:
            queue.add(key)

        prometheus = {each.name: Prometheus(each) for each in self.settings.prometheus}
        reconciler = Reconciler(self.client, self.telemetry, wake=wake, prometheus=prometheus)
        queue = WorkQueue(reconciler.reconcile)
        audit = WatchAudit(self.client, self.settings.namespaces, queue.add)
        election = Election(
            self.client,
            self.settings.lease_namespace,
            self.settings.lease_name,
            self.settings.identity,
        )
        health = HealthServer(
            self.settings.http_port,
            live=lambda: self._not_live(queue, audit),
            ready=audit.not_synced,
            metrics=lambda: self._exposition(queue, election, audit),
        )
        watcher = self._watcher(loop, queue, audit)
        return _Parts(queue, reconciler, audit, election, health, watcher)

    async def _serve(self, parts: _Parts) -> None:
        await _wait_for_crd(self.client, self.settings)
        parts.watcher.start()
        auditing = asyncio.create_task(parts.audit.watch(), name="watch audit")
        leading = asyncio.create_task(self._lead(parts), name="election")
        try:
            done, _ = await asyncio.wait([auditing, leading], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            auditing.cancel()
            leading.cancel()

    async def _lead(self, parts: _Parts) -> None:
        await parts.election.acquire()
        self.telemetry.lease_acquisitions.inc()
        working = asyncio.create_task(parts.queue.run(), name="queue")
        keeping = asyncio.create_task(parts.election.keep(), name="lease")
        try:
            await asyncio.wait([working, keeping], return_when=asyncio.FIRST_COMPLETED)
            if not keeping.done():
                await working  # closed: looks in progress end under the Lease
                await keeping
            # At once, without a last word: another process may lead by now.
            os._exit(LOST_LEASE)
        finally:
            working.cancel()
            keeping.cancel()

    async def _shut_down(self, parts: _Parts, background: list[asyncio.Task[None]]) -> None:
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await parts.election.release()
        await asyncio.to_thread(parts.watcher.stop, WATCHER_SECONDS)
        await parts.reconciler.close()
        await parts.health.stop()

    async def _first_of(self, background: list[asyncio.Task[None]]) -> None:
        """Returns when told to stop; a background task never ends but by a fault, which it raises here."""
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait([stopped, *background], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        for task in done - {stopped}:
            if error := task.exception():
                raise error

    def _watcher(
        self, loop: asyncio.AbstractEventLoop, queue: WorkQueue, audit: WatchAudit
    ) -> Watcher:
        def enqueue(key: Key, version: str) -> None:
            if version:
                audit.seen(key, version)
            queue.add(key)

        return Watcher(
            self.settings,
            seen=lambda key, version: _threadsafe(loop, enqueue, key, version),
            ended=lambda: _threadsafe(loop, self._stop.set),
        )

    def _not_live(self, queue: WorkQueue, audit: WatchAudit) -> str:
        if self._lag.worst > LAG_LIMIT_SECONDS:
            return f"event loop is late by {self._lag.worst:.1f} s, need <= {LAG_LIMIT_SECONDS:g} s"
        if queue.longest_run > LOOK_LIMIT_SECONDS:
            return f"a look takes {queue.longest_run:.0f} s, need <= {LOOK_LIMIT_SECONDS:g} s"
        return audit.too_old()

    def _exposition(self, queue: WorkQueue, election: Election, audit: WatchAudit) -> bytes:
        self.telemetry.audit_age.set(audit.age)
        self.telemetry.queue_depth.set(queue.depth)
        self.telemetry.queue_age.set(queue.oldest_age)
        self.telemetry.leader.set(float(election.leading))
        return self.telemetry.exposition()

    def _exit_code(self, parts: _Parts) -> int:
        fault = parts.watcher.error or parts.audit.fault
        if fault:
            log.error("ended by a fault of the watches", fault=fault)
            return WATCHES_ENDED
        log.info("stopped")
        return 0


def _threadsafe(
    loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: object
) -> None:
    with suppress(RuntimeError):  # the loop is closed: the process ends anyway
        loop.call_soon_threadsafe(function, *arguments)
