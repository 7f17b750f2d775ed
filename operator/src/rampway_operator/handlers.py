"""kopf as the source of events: handlers put a key on the queue and do nothing else.

It does not know what a key leads to. kopf runs in a thread with an event loop of its own, so that neither
its shutdown nor a slow look can disturb the other; no handler here needs finalizers or annotations.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import kopf
import structlog

from rampway_operator.cluster.client import read_credentials
from rampway_operator.cluster.resources import (
    INFERENCE_DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    SERVICES,
    Resource,
)
from rampway_operator.core import names
from rampway_operator.errors import ApiError
from rampway_operator.queue import Key
from rampway_operator.settings import Settings

__all__ = ["Watcher"]

LOGIN_MINUTES: Final = 10
CHILDREN: Final = (REPLICA_SETS, PODS, SERVICES)

log = structlog.get_logger(__name__)

Seen = Callable[[Key, str], None]
"""Told the key to look at, and the resourceVersion when the event is about the object itself, else ''."""


@dataclasses.dataclass(slots=True)
class Watcher:
    """The watches of one operator process. `seen` is called in the watcher's thread."""

    settings: Settings
    seen: Seen
    ended: Callable[[], None]
    """Called in the watcher's thread when the watches have ended, whatever the reason."""
    error: str = ""
    """Why the watches ended; empty when they were stopped."""
    _stop: threading.Event = dataclasses.field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to watch; the first events are the objects that exist."""
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the watches; blocks until they have ended, or for `seconds`."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            asyncio.run(
                kopf.operator(
                    registry=_registry(self.settings, self.seen),
                    settings=_kopf_settings(),
                    namespaces=self.settings.namespaces,
                    clusterwide=not self.settings.namespaces,
                    standalone=True,
                    # Else kopf asks the password database, which lacks an image's numeric user.
                    # It does not export the NewType of str that it wants here.
                    identity=self.settings.identity,  # type: ignore[arg-type]
                    stop_flag=self._stop,
                )
            )
        except Exception as error:
            self.error = str(error) or type(error).__name__
            log.exception("watches failed")
        else:
            self.error = "" if self._stop.is_set() else "the watches ended by themselves"
        finally:
            self._stop.set()
            self.ended()


def _registry(settings: Settings, seen: Seen) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return await _connection(settings.kubeconfig)

    async def changed(meta: Mapping[str, Any], **_: Any) -> None:
        seen(Key(meta["namespace"], meta["name"]), meta.get("resourceVersion") or "")

    async def child_changed(meta: Mapping[str, Any], **_: Any) -> None:
        seen(Key(meta["namespace"], meta["labels"][names.LABEL_NAME]), "")

    kopf.on.login(registry=registry, id="login", errors=kopf.ErrorsMode.TEMPORARY, backoff=5)(login)
    kopf.on.event(*_address(INFERENCE_DEPLOYMENTS), registry=registry, id="changed")(changed)
    for resource in CHILDREN:
        kopf.on.event(
            *_address(resource),
            registry=registry,
            id=f"{resource.plural}-changed",
            labels={names.LABEL_NAME: kopf.PRESENT},
        )(child_changed)
    return registry


def _address(resource: Resource) -> tuple[str, str, str]:
    return resource.group, resource.version, resource.plural


async def _connection(kubeconfig: str | None) -> kopf.ConnectionInfo:
    try:
        found = await read_credentials(kubeconfig)
    except ApiError as error:
        raise kopf.TemporaryError(str(error), delay=5) from error
    scheme, _, token = found.authorization.partition(" ")
    return kopf.ConnectionInfo(
        server=found.server,
        ca_path=found.ca_path,
        certificate_path=found.certificate_path,
        private_key_path=found.private_key_path,
        scheme=scheme.capitalize() or None,
        token=token or None,
        insecure=found.insecure,
        # Service account tokens are renewed in their file: read it again long before one ends.
        expiration=datetime.now(UTC) + timedelta(minutes=LOGIN_MINUTES),
    )


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 240  # goes into the URL as it is: an integer
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 5
    settings.watching.inactivity_timeout = 70
    settings.watching.chunk_size = 250
    for resource in CHILDREN:
        settings.watching.label_selectors[_address(resource)] = names.LABEL_NAME
    settings.networking.request_timeout = 15
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (0.2, 0.5, 1, 2, 5, 10, 20)
    settings.networking.enforce_retry_after = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = 20
    # Never used: no handler here writes. Named so that a stray one could not meet another operator's.
    settings.persistence.finalizer = "rampway.dev/unused"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="rampway.dev")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="rampway.dev")
    return settings
