"""What every route shares: settings, the loaded model, the bridge, and the server's life.

It knows no route and no wire format.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from rampway_server.api.grammars import Grammars
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from rampway_server.api.bridge import Bridge
    from rampway_server.api.dialect import Dialect
    from rampway_server.api.keys import Keys
    from rampway_server.engine.batch import RunnerLimits
    from rampway_server.engine.engine import Engine
    from rampway_server.engine.tokenizer import Tokenizer
    from rampway_server.settings import ServerSettings
    from rampway_server.telemetry import Telemetry

__all__ = ["Life", "Loaded", "Service"]

MIN_STUCK_SECONDS = 60.0
LONGEST_STEPS = 3.0
"""The engine counts as stuck after this many of the longest legal steps, at least a minute."""


class Life(Enum):
    """STARTING → READY → DRAINING → REFUSING; DEAD from anywhere."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    """SIGTERM came: not ready any more, but what arrives is still served."""
    REFUSING = "refusing"
    """The drain's deadline passed: what still arrives is answered with 503."""
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model that can be served."""

    engine: Engine
    bridge: Bridge
    tokenizer: Tokenizer
    limits: RunnerLimits
    context_length: int
    """The runner's, or less where the pool or a flag allows less."""
    cache_backend: str
    cache_fallback: str | None
    device: str
    """What really runs: with `--device auto` the one that was found."""
    info: dict[str, object]
    longest_step_seconds: float
    dialect: Dialect


class Service:
    """One server process as its routes see it; used on the event loop's thread only."""

    def __init__(self, settings: ServerSettings, telemetry: Telemetry, keys: Keys) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.keys = keys
        self.life = Life.STARTING
        self.started_at = time.time()
        self.tokenizing = ThreadPoolExecutor(2, thread_name_prefix="tokenize")
        self.grammars = Grammars()
        self.probing = asyncio.Lock()
        self.next_id = itertools.count(1).__next__
        self._loaded: Loaded | None = None

    def attach(self, loaded: Loaded) -> None:
        """Begin to serve this model."""
        self._loaded = loaded
        if self.life is Life.STARTING:
            self.life = Life.READY

    def close(self) -> None:
        """End what works beside the loop; the engine is not ours."""
        self.tokenizing.shutdown()
        self.grammars.close()

    @property
    def model_id(self) -> str:
        """The model's name in the API."""
        return self.settings.served_model_name

    @property
    def loaded(self) -> Loaded:
        """The model; raises 503 before it is loaded."""
        if self._loaded is None:
            raise RequestError(
                "server is starting: the model is not loaded yet",
                status=503,
                kind="overloaded_error",
                code="starting",
                retry_after_seconds=1,
            )
        return self._loaded

    def require_open(self) -> Loaded:
        """Return the model, or raise the 503 that says why nothing is taken now."""
        if self.life in {Life.REFUSING, Life.DEAD}:
            raise shutting_down(self.life)
        return self.loaded

    @property
    def is_ready(self) -> bool:
        """Whether a router should send requests here."""
        return self.life is Life.READY

    @property
    def is_alive(self) -> bool:
        """Whether the engine's loop goes round; a long step is not a stuck one."""
        if self.life is Life.DEAD:
            return False
        if self._loaded is None:
            return True
        allowed = max(MIN_STUCK_SECONDS, LONGEST_STEPS * self._loaded.longest_step_seconds)
        return self._loaded.engine.heartbeat_age_seconds() <= allowed

    def heartbeat_age_seconds(self) -> float:
        """Seconds since the engine's loop went round; 0 before it starts."""
        return 0.0 if self._loaded is None else self._loaded.engine.heartbeat_age_seconds()

    def require_model(self, name: str | None) -> None:
        """Raise 404 for another model's name; no name means the one there is."""
        if name is not None and name != self.model_id:
            raise RequestError(
                f"model does not exist: got {name[:128]!r}, need {self.model_id!r}",
                status=404,
                kind="not_found_error",
                param="model",
                code="model_not_found",
            )

    def status(self) -> dict[str, Any]:
        """Return the now-true facts that head `/server_info`."""
        return {
            "status": self.life.value,
            "model_id": self.model_id,
            "device": self.loaded.device,
            "uptime_seconds": round(time.time() - self.started_at, 1),
        }


def shutting_down(life: Life) -> RequestError:
    """Return the 503 of a server that takes nothing any more."""
    return RequestError(
        "server is shutting down: send the request again, it will reach another one",
        status=503,
        kind="overloaded_error",
        code="draining" if life is not Life.DEAD else "engine_dead",
        retry_after_seconds=1,
    )
