"""Clients' grammars, compiled under a budget: first in a process that may be killed, then for use.

It knows no schema and no route; a grammar is Lark text from `structured` or `tools`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import subprocess
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from rampway_server.engine.grammar import Grammar
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from rampway_server.engine.tokenizer import Tokenizer

__all__ = ["Grammars"]

MAX_GRAMMAR_BYTES = 64 << 10
MAX_WAITING = 16
"""Grammars that may wait for the one worker; a flood of hard ones must not hold up everybody."""
KEPT = 128
"""Compiled grammars kept: a schema is usually asked for again and again."""
WALL_SECONDS = 20.0
"""For a worker that gets no CPU at all; the budget itself is CPU time."""


class Grammars:
    """Compiles and keeps grammars for one tokenizer; used on the event loop's thread."""

    def __init__(self, worker: list[str] | None = None) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._worker = _Worker(
            worker or [sys.executable, "-m", "rampway_server.api.grammar_worker"]
        )
        self._kept: OrderedDict[bytes, Grammar] = OrderedDict()
        self._vocabulary: LLTokenizer | None = None
        self._waiting = 0

    async def compile(self, lark: str, tokenizer: Tokenizer, param: str) -> Grammar:
        """Return the grammar; raises a 400 that names `param` where it is too much or wrong."""
        if len(lark) > MAX_GRAMMAR_BYTES:
            raise _refused(param, f"got {len(lark)} bytes, need at most {MAX_GRAMMAR_BYTES}")
        if not tokenizer.eos_ids:
            raise _refused(param, "this model has no end-of-sequence token to end it with")
        key = hashlib.blake2b(lark.encode(), digest_size=16).digest()
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = await self._compiled(lark, tokenizer, param)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found

    def close(self) -> None:
        """End the worker and its thread."""
        self._worker.interrupt()
        self._thread.shutdown()
        self._worker.kill()

    async def _compiled(self, lark: str, tokenizer: Tokenizer, param: str) -> Grammar:
        if self._waiting >= MAX_WAITING:
            raise RequestError(
                f"{param} cannot be compiled now: {self._waiting} others wait; send it again later",
                status=429,
                kind="rate_limit_error",
                param=param,
                code="grammar_queue_full",
                retry_after_seconds=1,
            )
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._work, lark, tokenizer)
        except ValueError as error:
            raise _refused(param, str(error)[:300]) from None
        finally:
            self._waiting -= 1

    def _work(self, lark: str, tokenizer: Tokenizer) -> Grammar:
        if fault := self._worker.check(lark):
            raise ValueError(fault)
        if self._vocabulary is None:
            self._vocabulary = tokenizer.for_grammars()
        return Grammar(self._vocabulary, lark)


class _Worker:
    """The process that tries a grammar out; started when it is needed, and again when it died."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def check(self, lark: str) -> str:
        """Return why the grammar cannot be used, "" when it can."""
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        guard = threading.Timer(WALL_SECONDS, process.kill)
        guard.start()
        try:
            process.stdin.write(json.dumps(lark) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            guard.cancel()
        if answer:
            return str(json.loads(answer))
        self.kill()
        return "it takes longer than 200 ms or more memory than 1 GiB to compile: make it simpler"

    def interrupt(self) -> None:
        """End the process from another thread; whoever waits for its answer gets none."""
        if (process := self._process) is not None:
            process.kill()

    def kill(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not read any more
                    pipe.close()


def _refused(param: str, why: str) -> RequestError:
    return RequestError(f"{param} cannot be used: {why}", param=param, code="invalid_grammar")
