"""Finds out when the watches have gone silent: compares what they told with a fresh list once a minute.

It does not know how events arrive. A watch that says nothing looks just like a cluster where nothing
happens, and an operator that trusts it is blind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from rampway_operator.cluster.client import Client
from rampway_operator.cluster.resources import INFERENCE_DEPLOYMENTS
from rampway_operator.errors import ApiError
from rampway_operator.queue import Key

__all__ = ["WatchAudit"]

PERIOD_SECONDS: Final = 60.0
OLD_SECONDS: Final = 180.0
STRIKES: Final = 2

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class WatchAudit:
    """Versions that the watches told, and versions that a list told."""

    client: Client
    namespaces: tuple[str, ...]
    resync: Callable[[Key], None]
    """Called with each key whose event did not come."""
    fault: str = ""
    """Why the watches are not to be trusted; empty while they are."""
    _seen: dict[Key, tuple[str, float]] = field(default_factory=dict)
    _listed: dict[Key, str] = field(default_factory=dict)
    _listed_at: float | None = None
    _tried_at: float | None = None
    _strikes: int = 0

    def seen(self, key: Key, version: str) -> None:
        """Note an event of the object itself."""
        self._seen[key] = (version, asyncio.get_running_loop().time())

    async def watch(self) -> None:
        """Audits every minute; returns when the watches are not to be trusted any more."""
        while not self.fault:
            try:
                await self.look()
            except ApiError as error:
                log.warning("watch audit failed", error=str(error))
            if not self.fault:
                await asyncio.sleep(PERIOD_SECONDS)

    async def look(self) -> None:
        """One audit: every version listed by the last one must have been told by an event since.

        Raises ApiError, and judges nothing, when there is no fresh list: then the watches have an excuse.
        """
        self._tried_at = asyncio.get_running_loop().time()
        fresh: dict[Key, str] = {}
        for namespace in self.namespaces or ("",):
            for obj in await self.client.list_objects(
                INFERENCE_DEPLOYMENTS, namespace, metadata_only=True
            ):
                metadata = obj["metadata"]
                fresh[Key(metadata["namespace"], metadata["name"])] = metadata["resourceVersion"]
        silent = [key for key, version in self._listed.items() if self._missed(key, version)]
        silent = [key for key in silent if key in fresh]
        self._strikes = self._strikes + 1 if silent else 0
        for key in silent:
            log.warning("no event for a change that a list shows", key=str(key))
            self.resync(key)
        if self._strikes >= STRIKES:
            self.fault = f"no event for {len(silent)} changed objects in {STRIKES} audits"
        self._listed, self._listed_at = fresh, asyncio.get_running_loop().time()
        self._seen = {key: value for key, value in self._seen.items() if key in fresh}

    def not_synced(self) -> str:
        """Why not every object was seen since the start; empty when all were."""
        if self._listed_at is None:
            return "objects have not been listed yet"
        missing = self._listed.keys() - self._seen.keys()
        return f"{len(missing)} objects have not been seen by the watches" if missing else ""

    @property
    def age(self) -> float:
        """Seconds since the last fresh list; 0 before the first."""
        now = asyncio.get_running_loop().time()
        return 0.0 if self._listed_at is None else now - self._listed_at

    def too_old(self) -> str:
        """Why the last try of an audit is too long ago; empty when it is not, or none was made yet.

        A try that fails counts: an API server that is down is no reason to restart the operator.
        """
        if self._tried_at is None:
            return ""
        age = asyncio.get_running_loop().time() - self._tried_at
        return f"last watch audit was {age:.0f} s ago" if age > OLD_SECONDS else ""

    def _missed(self, key: Key, version: str) -> bool:
        """Neither this version nor any event after the list that showed it."""
        seen, at = self._seen.get(key, ("", float("-inf")))
        return seen != version and at < (self._listed_at or 0.0)
