"""Sends one chat's turns to an OpenAI server, without a single retry, and reports each outcome.

It does not know when chats start.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from loadgen.report import Outcome
from loadgen.workload import Chat, Workload, system_prompt

__all__ = ["Client"]


class Client:
    """Holds the two kinds of connections: kept alive and shared, or fresh for each request."""

    def __init__(
        self,
        url: str,
        model: str,
        load: Workload,
        done: Callable[[Outcome], None],
        sent: Callable[[], None],
    ) -> None:
        self._url = f"{url.rstrip('/')}/v1/chat/completions"
        self._model = model
        self._load = load
        self._done = done
        self._sent = sent
        timeout = aiohttp.ClientTimeout(total=300, sock_connect=10)
        self._pooled = aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        )
        self._fresh = aiohttp.ClientSession(
            timeout=timeout, connector=aiohttp.TCPConnector(limit=0, force_close=True)
        )
        # aiohttp sends an idempotent request again after a dropped kept-alive connection; ours are
        # POSTs, which it never repeats, so that every lost request is seen.

    async def close(self) -> None:
        """Close both connection pools."""
        await asyncio.gather(self._pooled.close(), self._fresh.close())

    async def play(self, chat: Chat, stopping: asyncio.Event) -> None:
        """Send the chat's turns one after the other; a failed turn or `stopping` ends the chat."""
        messages: list[dict[str, str]] = [
            {"role": "system", "content": system_prompt(self._load, chat.group)}
        ]
        for think, text in zip(chat.thinks, chat.users, strict=True):
            if think:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), think)
            if stopping.is_set():
                return
            messages.append({"role": "user", "content": text})
            reply = await self._turn(chat, messages)
            if reply is None:
                return
            messages.append({"role": "assistant", "content": reply})

    async def _turn(self, chat: Chat, messages: list[dict[str, str]]) -> str | None:
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": self._load.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        session = self._pooled if chat.pooled else self._fresh
        self._sent()
        start = time.monotonic()
        seen = _Stream()
        error = ""
        try:
            async with session.post(
                self._url, json=body, headers={"x-session-id": chat.session_id}
            ) as response:
                seen.revision = response.headers.get("x-rampway-revision", "")
                if response.status != 200:
                    error = f"status {response.status}: {(await response.text())[:120]}"
                else:
                    await seen.read(response, start)
                    error = seen.fault()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as failure:
            error = f"{type(failure).__name__}: {str(failure)[:120]}"
        self._done(
            Outcome(
                at=time.time(),
                pooled=chat.pooled,
                revision=seen.revision,
                ttft=seen.ttft,
                total=time.monotonic() - start,
                prompt_tokens=seen.prompt_tokens,
                cached_tokens=seen.cached_tokens,
                error=error,
                session=chat.session_id,
            )
        )
        return None if error else seen.text


class _Stream:
    """One SSE answer as it arrives."""

    def __init__(self) -> None:
        self.revision = ""
        self.ttft: float | None = None
        self.text = ""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.finished = False
        self.ended = False
        self.error = ""

    async def read(self, response: aiohttp.ClientResponse, start: float) -> None:
        async for raw in response.content:
            line = raw.strip()
            if not line.startswith(b"data: "):
                continue
            if line == b"data: [DONE]":
                self.ended = True
                continue
            self._event(json.loads(line[6:]), start)

    def _event(self, event: dict[str, Any], start: float) -> None:
        if "error" in event:
            self.error = str(event["error"])[:120]
        usage = event.get("usage")
        if usage:
            self.prompt_tokens = int(usage["prompt_tokens"])
            self.cached_tokens = int(
                (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            )
        for choice in event.get("choices", ()):
            self.finished = self.finished or choice.get("finish_reason") is not None
            content = choice.get("delta", {}).get("content")
            if content:
                if self.ttft is None:
                    self.ttft = time.monotonic() - start
                self.text += content

    def fault(self) -> str:
        """Return why the answer does not count as complete; empty when it does."""
        if self.error:
            return f"error event: {self.error}"
        if not self.finished or not self.ended:
            return "truncated stream"
        return ""
