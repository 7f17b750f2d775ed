"""Sends a load over HTTP, each request when it is due, and notes what came when.

An open loop: latency counts from when a request was due, also where it had to wait to be sent, so a
slow server cannot hide by holding the load back (coordinated omission).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Callable

    from rampway_server.bench.load import Conversation, Turn

__all__ = ["Answer", "Target", "send_all"]

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go and what is in each of them."""

    url: str
    endpoint: str
    model: str
    stream: bool = True
    ignore_eos: bool = True
    timeout_seconds: float = 600.0
    extra_body: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def body(self, history: list[str], turn: Turn) -> dict[str, Any]:
        """Return the request of a turn behind `history`, which alternates user and assistant."""
        limits: dict[str, Any] = {"temperature": 0.0, "ignore_eos": self.ignore_eos}
        if self.endpoint.endswith("/generate"):
            key = "text" if isinstance(turn.prompt, str) else "input_ids"
            params = {**limits, "max_new_tokens": turn.output_tokens}
            return {
                key: _whole(history, turn),
                "sampling_params": params,
                "stream": self.stream,
                **self.extra_body,
            }
        body = {
            **limits,
            "model": self.model,
            "max_tokens": turn.output_tokens,
            "stream": self.stream,
        }
        if self.stream:
            body["stream_options"] = {"include_usage": True}
        if self.endpoint.endswith("/chat/completions"):
            texts = [*history, _text(turn.prompt)]
            body["messages"] = [
                {"role": "assistant" if at % 2 else "user", "content": text}
                for at, text in enumerate(texts)
            ]
        else:
            body["prompt"] = _whole(history, turn)
        return {**body, **self.extra_body}


@dataclass(slots=True)
class Answer:
    """One request; times are seconds since the start of the run."""

    due: float
    sent: float
    ended: float = 0.0
    first: float | None = None
    gaps: list[float] = field(default_factory=list)
    """Between the events that carried text."""
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str = ""
    """"" for success, else an HTTP status or the kind of failure."""

    @property
    def ttft(self) -> float:
        """Due to first token, in seconds."""
        return (self.ended if self.first is None else self.first) - self.due

    @property
    def latency(self) -> float:
        """Due to the end, in seconds."""
        return self.ended - self.due

    @property
    def tpot(self) -> float:
        """Seconds a token behind the first; NaN for an answer of one."""
        if self.output_tokens < 2:
            return math.nan
        return (self.latency - self.ttft) / (self.output_tokens - 1)


async def send_all(
    target: Target,
    load: list[Conversation],
    max_concurrency: int | None,
    on_end: Callable[[Answer], None],
) -> list[Answer]:
    """Send every conversation when it is due and return its answers, by end."""
    answers: list[Answer] = []
    slots = asyncio.Semaphore(max_concurrency or 1 << 30)
    # With everything due at once the clients make the pace: a request is due when its turn comes.
    closed = all(one.seconds == 0 for one in load)
    start = time.perf_counter()

    async def talk(one: Conversation) -> None:
        await asyncio.sleep(max(0.0, start + one.seconds - time.perf_counter()))
        due = one.seconds
        history: list[str] = []
        for turn in one.turns:
            async with slots:
                now = time.perf_counter() - start
                answer = Answer(now if closed or history else due, now)
                await _ask(session, target, target.body(history, turn), answer, start)
            answers.append(answer)
            on_end(answer)
            if answer.error:
                return
            history += [_text(turn.prompt), answer.text]

    timeout = aiohttp.ClientTimeout(total=target.timeout_seconds)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=connector, headers=target.headers, read_bufsize=READ_BYTES
    ) as session:
        await asyncio.gather(*(talk(one) for one in load))
    return answers


async def _ask(
    session: aiohttp.ClientSession,
    target: Target,
    body: dict[str, Any],
    answer: Answer,
    start: float,
) -> None:
    try:
        async with session.post(target.url + target.endpoint, json=body) as response:
            if response.status != 200:
                answer.error = f"HTTP {response.status}"
            elif target.stream:
                await _read_stream(response, answer, start)
            else:
                _note(await response.json(), answer)
    except TimeoutError:
        answer.error = "timeout"
    except (aiohttp.ClientError, ValueError) as error:
        answer.error = type(error).__name__
    answer.ended = time.perf_counter() - start


async def _read_stream(response: aiohttp.ClientResponse, answer: Answer, start: float) -> None:
    last = 0.0
    events = 0
    complete = False
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        if line.startswith(b"data: [DONE]"):
            complete = True
            break
        chunk = json.loads(line[6:])
        if "error" in chunk:
            answer.error = "error event"
            return
        if not _note(chunk, answer):
            continue
        now = time.perf_counter() - start
        events += 1
        if answer.first is None:
            answer.first = now
        else:
            answer.gaps.append(now - last)
        last = now
    if not complete:
        answer.error = "stream cut"
    # A server that tells no usage sends a token an event.
    answer.output_tokens = answer.output_tokens or events


def _note(chunk: dict[str, Any], answer: Answer) -> bool:
    """Take over text and counts of an event or a whole answer; return whether there was text."""
    usage = chunk.get("usage") or chunk.get("meta_info")
    if usage:
        answer.prompt_tokens = usage.get("prompt_tokens", 0)
        answer.output_tokens = usage.get("completion_tokens", 0)
        details = usage.get("prompt_tokens_details") or usage
        answer.cached_tokens = details.get("cached_tokens", 0)
    if "text" in chunk:
        # SGLang's own route repeats the whole text in each event.
        new = len(chunk["text"]) > len(answer.text)
        answer.text = chunk["text"]
        return new
    text = ""
    for choice in chunk.get("choices", ()):
        part = choice.get("delta") or choice.get("message") or choice
        text += part.get("content") or part.get("text") or part.get("reasoning_content") or ""
    answer.text += text
    return bool(text)


def _whole(history: list[str], turn: Turn) -> str | list[int]:
    if isinstance(turn.prompt, str):
        return "".join(history) + turn.prompt
    return list(turn.prompt)


def _text(prompt: str | tuple[int, ...]) -> str:
    """Return a prompt for a chat: ids as letters, one a token for a byte tokenizer."""
    return prompt if isinstance(prompt, str) else bytes(97 + t % 26 for t in prompt).decode()
