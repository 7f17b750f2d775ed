"""Sends warm-up prompts to the candidate and the baseline, alike, and measures their hit rates round by round.

It does not know when a cache is warm enough. Progress lives in memory: after a restart the rounds begin anew.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from rampway_operator.cluster.pod_http import PodHttp, PodRequestFailed
from rampway_operator.cluster.smoke import first_model
from rampway_operator.core.observed import WarmupProgress

__all__ = ["PromptSetInvalid", "Prompts", "Warmup", "parse_prompts"]

CONCURRENCY_PER_POD: Final = 4
SLICE_SECONDS: Final = 20.0
"""Longest run of one slice; what was not sent then is sent by the next."""
REQUEST_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 5.0


class PromptSetInvalid(ValueError):
    """A prompt set that cannot be used; the message names every bad line."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Request bodies of one prompt set."""

    bodies: tuple[dict[str, Any], ...]


def parse_prompts(name: str, key: str, data: dict[str, str]) -> Prompts:
    """The prompts under `key` of a ConfigMap's data. Raises PromptSetInvalid with every fault."""
    text = data.get(key)
    if text is None:
        raise PromptSetInvalid(f"ConfigMap {name} has no key {key}; add it")
    bodies: list[dict[str, Any]] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            bodies.append(_body(line))
        except ValueError as error:
            faults.append(f"line {number}: {error}")
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise PromptSetInvalid(f"ConfigMap {name}, {key}: {'; '.join(faults[:5])}{more}")
    if not bodies:
        raise PromptSetInvalid(f"ConfigMap {name}, {key}: got no line, need at least one")
    return Prompts(tuple(bodies))


def _body(line: str) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("got no JSON, need one JSON object a line") from None
    if not isinstance(body, dict):
        raise ValueError(f"got {type(body).__name__}, need a JSON object")  # noqa: TRY004 data
    if ("messages" in body) == ("prompt" in body):
        raise ValueError("need exactly one of messages (chat) and prompt (completion)")
    return {"max_tokens": 1} | body | {"stream": False}


Tokens = tuple[float, float] | None
CountTokens = Callable[[tuple[str, ...]], Awaitable[Tokens]]
"""(cached, prompt) token counters summed over the pods with these IPs, or None."""


@dataclass(slots=True)
class _Arm:
    """The rounds of one arm."""

    rounds: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    counted: bool = True
    """False once an answer of this round did not say how many tokens were cached."""

    def answered(self, answer: dict[str, Any]) -> None:
        usage = answer.get("usage")
        details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        prompt = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if type(cached) is int and type(prompt) is int and 0 <= cached <= prompt:
            self.cached_tokens += cached
            self.prompt_tokens += prompt
        else:
            self.counted = False

    def end_round(self, counters: Tokens) -> None:
        """Note the round's rate: from the answers, else from the pods' counters (cached, prompt) over the round."""
        cached, prompt = float(self.cached_tokens), float(self.prompt_tokens)
        if not self.counted and counters is not None:
            cached, prompt = counters
        if (self.counted or counters is not None) and prompt > 0:
            self.rounds.append(cached / prompt)
        self.prompt_tokens = self.cached_tokens = 0
        self.counted = True


@dataclass(slots=True)
class Warmup:
    """The warm-up of one set of pods. A round sends every prompt once to every pod of both arms."""

    http: PodHttp
    port: int
    pods: tuple[tuple[str, ...], tuple[str, ...]]
    """IPs of the candidate's and of the baseline's pods; other pods need another Warmup."""
    count_tokens: CountTokens
    progress: WarmupProgress = field(default_factory=WarmupProgress)
    _candidate: _Arm = field(default_factory=_Arm)
    _baseline: _Arm = field(default_factory=_Arm)
    _position: int = 0
    _round_start: tuple[Tokens, Tokens] = (None, None)
    _sent: int = 0
    _failures: int = 0
    _last_error: str = ""
    _models: dict[str, str] = field(default_factory=dict)
    _not_before: float = 0.0
    _task: asyncio.Task[None] | None = None

    def start(self, max_requests: int, prompts: Prompts, done: Callable[[], None]) -> None:
        """Send the next slice of about `max_requests` in the background and call `done`; nothing happens while one is being sent,
        or for a moment after one in which every request failed.
        """
        running = self._task is not None and not self._task.done()
        if running or asyncio.get_running_loop().time() < self._not_before:
            return
        self._task = asyncio.create_task(self._slice(max_requests, prompts, done), name="warm-up")

    async def close(self) -> None:
        """Stop sending."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _slice(self, budget: int, prompts: Prompts, done: Callable[[], None]) -> None:
        """About `budget` requests, both arms together, in about SLICE_SECONDS, at most to a round's end."""
        loop = asyncio.get_running_loop()
        pods = [(ip, self._candidate) for ip in self.pods[0]]
        pods += [(ip, self._baseline) for ip in self.pods[1]]
        end = loop.time() + SLICE_SECONDS
        while pods and budget > 0 and loop.time() < end:
            if self._position == 0:
                self._round_start = await self._counts()
            size = max(1, min(CONCURRENCY_PER_POD, budget // len(pods)))
            chunk = prompts.bodies[self._position :][:size]
            failed_before = self._failures
            await asyncio.gather(*(self._send(ip, arm, body) for body in chunk for ip, arm in pods))
            budget -= len(chunk) * len(pods)
            self._position += len(chunk)
            ended = self._position >= len(prompts.bodies)
            if ended:
                await self._end_round()
            self._show(len(prompts.bodies))
            if ended:
                # Whether there is to be another round is decided first: requests that come after the
                # caches are steady would be taken for users' in the windows that judge.
                break
            if self._failures - failed_before == len(chunk) * len(pods):
                self._not_before = loop.time() + RETRY_SECONDS
                break
        done()

    async def _send(self, ip: str, arm: _Arm, body: dict[str, Any]) -> None:
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        self._sent += 1
        try:
            if "model" not in body:
                body = body | {"model": await self._model(ip)}
            arm.answered(
                await self.http.post_json(ip, self.port, path, body, seconds=REQUEST_SECONDS)
            )
        except PodRequestFailed as error:
            self._failures += 1
            self._last_error = str(error)

    async def _model(self, ip: str) -> str:
        if ip not in self._models:
            self._models[ip] = await first_model(self.http, ip, self.port)
        return self._models[ip]

    async def _counts(self) -> tuple[Tokens, Tokens]:
        candidate, baseline = self.pods
        return await self.count_tokens(candidate), await self.count_tokens(baseline)

    async def _end_round(self) -> None:
        self._position = 0
        ends = await self._counts()
        for arm, start, end in zip(
            (self._candidate, self._baseline), self._round_start, ends, strict=True
        ):
            arm.end_round(_increase(start, end))

    def _show(self, prompts: int) -> None:
        self.progress = WarmupProgress(
            requests_sent=self._sent,
            failures=self._failures,
            last_error=self._last_error,
            candidate_rounds=tuple(self._candidate.rounds),
            baseline_rounds=tuple(self._baseline.rounds),
            prompts=prompts,
        )


def _increase(start: Tokens, end: Tokens) -> Tokens:
    """How much (cached, prompt) grew; None when it is not known or a counter was reset."""
    if start is None or end is None:
        return None
    cached, prompt = end[0] - start[0], end[1] - start[1]
    return (cached, prompt) if 0 <= cached <= prompt else None
