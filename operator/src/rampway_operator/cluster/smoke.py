"""One real token from a pod before it may count as available.

It does not know what follows from a failure. Results live in memory: asking again is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from rampway_operator.cluster.pod_http import PodHttp, PodRequestFailed

__all__ = ["SmokeTests", "first_model"]

TOKEN_SECONDS: Final = 30.0
MODELS_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 5.0
WANTS_A_KEY: Final = frozenset({401, 403})

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class SmokeTests:
    """Smoke requests in the background, by pod UID."""

    http: PodHttp
    passed: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    def start(self, uid: str, ip: str, port: int, done: Callable[[], None]) -> None:
        """Ask the pod in the background and call `done`; nothing happens while it is being asked or just was."""
        now = asyncio.get_running_loop().time()
        if uid in self.passed or uid in self._tasks or now < self._not_before.get(uid, 0.0):
            return
        self._tasks[uid] = asyncio.create_task(self._ask(uid, ip, port, done), name=f"smoke {uid}")

    def keep_only(self, uids: set[str], known: set[str]) -> None:
        """Forget the pods of `known` that are not in `uids` any more."""
        for uid in known - uids:
            self.passed.discard(uid)
            self.errors.pop(uid, None)
            self._not_before.pop(uid, None)
            if task := self._tasks.pop(uid, None):
                task.cancel()

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, uid: str, ip: str, port: int, done: Callable[[], None]) -> None:
        try:
            await _one_token(self.http, ip, port)
        except PodRequestFailed as error:
            if error.status in WANTS_A_KEY:
                # Its readiness has to do: the operator holds no keys, and may not read Secrets.
                log.warning("engine wants an API key: no token was asked for", pod_uid=uid)
                self._pass(uid)
            else:
                self.errors[uid] = str(error)
                self._not_before[uid] = asyncio.get_running_loop().time() + RETRY_SECONDS
        else:
            self._pass(uid)
        finally:
            self._tasks.pop(uid, None)
        done()

    def _pass(self, uid: str) -> None:
        self.passed.add(uid)
        self.errors.pop(uid, None)


async def first_model(http: PodHttp, ip: str, port: int) -> str:
    """The id of the first model that the engine lists. Raises PodRequestFailed."""
    listed = (await http.get_json(ip, port, "/v1/models", seconds=MODELS_SECONDS)).get("data")
    first: Any = listed[0] if isinstance(listed, list) and listed else None
    model = first.get("id") if isinstance(first, dict) else None
    if not isinstance(model, str) or not model:
        raise PodRequestFailed("/v1/models lists no model: need at least one with an id")
    return model


async def _one_token(http: PodHttp, ip: str, port: int) -> None:
    body = {"model": await first_model(http, ip, port), "prompt": "Hello", "max_tokens": 1}
    answer = await http.post_json(ip, port, "/v1/completions", body, seconds=TOKEN_SECONDS)
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise PodRequestFailed("/v1/completions answered without choices: need one")
