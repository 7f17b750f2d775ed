"""Leader election by a Lease: 15 s valid, renewed every 2 s, given up after 10 s without a renewal.

It does not know what the leader does; losing the Lease is told to a callback that must end the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import structlog

from rampway_operator.cluster.client import Client, Object
from rampway_operator.cluster.resources import LEASES
from rampway_operator.errors import ApiError, Conflict, NotFound

__all__ = ["Election"]

DURATION_SECONDS: Final = 15
RENEW_DEADLINE_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
REQUEST_SECONDS: Final = 5.0
RELEASE_TRIES: Final = 3

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Election:
    """One candidate for a Lease.

    A foreign Lease is judged by how long it has not changed before our own eyes, never by comparing its
    timestamps with this machine's clock: clocks differ.
    """

    client: Client
    namespace: str
    name: str
    identity: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    leading: bool = False
    _lease: Object | None = None
    _seen_at: float = 0.0
    """Loop time at which the Lease was last seen to change."""
    _renewed_at: float = field(default=0.0)

    async def acquire(self) -> None:
        """Returns once this process is the leader."""
        while not await self._attempt():  # noqa: ASYNC110 it asks another machine, not a flag
            await asyncio.sleep(RETRY_SECONDS)
        self.leading = True
        log.info("became leader", lease=f"{self.namespace}/{self.name}", identity=self.identity)

    async def keep(self) -> None:
        """Renews the Lease; returns, with a log line, only when it is lost."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            if await self._attempt():
                continue
            holder = _spec(self._lease).get("holderIdentity")
            if holder and holder != self.identity:
                log.error("lost the lease", holder=holder)
                break
            if loop.time() - self._renewed_at > RENEW_DEADLINE_SECONDS:
                log.error("lost the lease", not_renewed_for_s=RENEW_DEADLINE_SECONDS)
                break
        self.leading = False

    async def release(self) -> None:
        """Hand the Lease over at once, so that a waiting process need not wait until it runs out.

        The Lease is read anew: a claim or renewal that was cut off by the stop may have been accepted.
        """
        self.leading = False
        try:
            for _ in range(RELEASE_TRIES):
                await self._look()
                if _spec(self._lease).get("holderIdentity") != self.identity:
                    return
                with contextlib.suppress(Conflict):
                    await self._write({"holderIdentity": "", "leaseDurationSeconds": 1})
                    return
            log.warning("lease not released; it runs out by itself", error="it kept changing")
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released; it runs out by itself", error=str(error))

    async def _attempt(self) -> bool:
        """Whether the Lease is ours after one try to take or renew it."""
        try:
            if not self.leading:
                await self._look()
                if not self._may_take():
                    return False
            await self._write(self._claim())
        except Conflict:
            await self._look_again()
            return False
        except (ApiError, TimeoutError) as error:
            log.warning("lease request failed", error=str(error) or "no answer in time")
            return False
        self._renewed_at = asyncio.get_running_loop().time()
        return True

    async def _look_again(self) -> None:
        try:
            await self._look()
        except (ApiError, TimeoutError):
            self._lease = None

    async def _look(self) -> None:
        async with asyncio.timeout(REQUEST_SECONDS):
            try:
                lease = await self.client.get(LEASES, self.namespace, self.name)
            except NotFound:
                self._lease = None
                return
        if _version(lease) != _version(self._lease):
            self._seen_at = asyncio.get_running_loop().time()
        self._lease = lease

    def _may_take(self) -> bool:
        spec = _spec(self._lease)
        if spec.get("holderIdentity") in (None, "", self.identity):
            return True
        valid = float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)
        return asyncio.get_running_loop().time() - self._seen_at > valid

    def _claim(self) -> Object:
        now = self.clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = _spec(self._lease)
        claim: Object = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": now,
        }
        if spec.get("holderIdentity") != self.identity:
            claim["acquireTime"] = now
            claim["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return claim

    async def _write(self, spec: Object) -> None:
        """The resourceVersion is the fence: of two claims of the same Lease only one can be accepted."""
        async with asyncio.timeout(REQUEST_SECONDS):
            if self._lease is None:
                body = {
                    "apiVersion": LEASES.api_version,
                    "kind": LEASES.kind,
                    "metadata": {"name": self.name, "namespace": self.namespace},
                    "spec": spec,
                }
                self._lease = await self.client.create(LEASES, self.namespace, body)
            else:
                body = {"metadata": {"resourceVersion": _version(self._lease)}, "spec": spec}
                self._lease = await self.client.merge_patch(LEASES, self.namespace, self.name, body)


def _spec(lease: Object | None) -> Object:
    return dict((lease or {}).get("spec") or {})


def _version(lease: Object | None) -> str:
    return str((lease or {}).get("metadata", {}).get("resourceVersion", ""))
