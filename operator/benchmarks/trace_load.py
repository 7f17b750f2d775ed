"""Two revisions under a recorded trace, on the server's roofline of a named GPU, as paired windows.

Continuous batching: a step has the decode rows and up to STEP_TOKENS prompt tokens; between two events
equal decode steps are taken at once. Each pod has an LRU prefix cache of the trace's own blocks. It knows
nothing of verdicts. Everything random comes from the generator that is passed in.
"""

from __future__ import annotations

import csv
import json
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

import numpy as np
from simulated_load import EDGES, Arm, windows_of

from rampway_operator.core.observed import Window
from rampway_server.engine.roofline import GPUS, MODELS, Roofline

__all__ = ["Request", "TraceLoad", "read_trace", "replay"]

BLOCK = 512
"""Tokens a block of the Mooncake traces."""
STEP_TOKENS = 8192
CACHE_SHARE = 0.9
"""Share of the memory beside the weights that holds cached blocks."""


@dataclass(frozen=True, slots=True)
class Request:
    """One line of a trace. `at` is in seconds; `blocks` are empty where the trace has no prefixes."""

    at: float
    prompt: int
    output: int
    session: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceLoad:
    """A trace at a rate: its times are stretched, its order and its bursts stay."""

    path: str
    rate: float
    window: float = 15.0
    gpu: str = "h100"
    model: str = "llama-3-8b"


@lru_cache(maxsize=4)
def read_trace(path: str) -> tuple[Request, ...]:
    """The requests of a Mooncake (.jsonl) or an Azure (.csv) trace, in order of time.

    Mooncake requests that share more than the system prompt's block with an earlier one are of its session;
    Azure's have no prefixes, so each is a session of its own.
    """
    text = Path(path).read_text(encoding="utf-8").splitlines()
    if path.endswith(".csv"):
        rows = list(csv.DictReader(text))
        times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
        return tuple(
            Request(
                (at - times[0]).total_seconds(),
                max(1, int(row["ContextTokens"])),
                max(1, int(row["GeneratedTokens"])),
                number,
            )
            for number, (at, row) in enumerate(zip(times, rows, strict=True))
        )
    known: dict[int, int] = {}
    requests = []
    for number, line in enumerate(text):
        row = json.loads(line)
        blocks = tuple(row["hash_ids"])
        session = next((known[b] for b in reversed(blocks[1:]) if b in known), number)
        known.update(dict.fromkeys(blocks[1:], session))
        at, prompt, output = row["timestamp"] / 1000.0, row["input_length"], row["output_length"]
        requests.append(Request(at, max(1, prompt), max(1, output), session, blocks))
    return tuple(sorted(requests, key=lambda request: request.at))


def replay(
    rng: np.random.Generator, load: TraceLoad, arms: tuple[Arm, ...], windows: int
) -> list[Window]:
    """`windows` windows of (candidate, baseline, stable), or of (candidate, stable), from a random start.

    Sessions are dealt to arms by their shares and to pods at random, anew in each replay.
    """
    trace = read_trace(load.path)
    span = trace[-1].at + 1.0
    stretch = len(trace) / span / load.rate
    first = int(rng.integers(0, len(trace)))
    shares = np.cumsum([arm.share for arm in arms])
    end = windows * load.window
    pods: dict[tuple[int, int], list[tuple[float, Request]]] = {
        (i, p): [] for i, arm in enumerate(arms) for p in range(arm.pods)
    }
    dealt: dict[tuple[int, int], tuple[int, int]] = {}
    position, lap = first, 0
    while True:
        request = trace[position]
        at = (request.at - trace[first].at + lap * span) * stretch
        if at >= end:
            break
        key = (lap, request.session)
        if key not in dealt:
            arm = min(int(np.searchsorted(shares, rng.random())), len(arms) - 1)
            dealt[key] = (arm, int(rng.integers(0, arms[arm].pods)))
        pods[dealt[key]].append((at, request))
        position += 1
        if position == len(trace):
            position, lap = 0, lap + 1
    served = [
        [_Pod(load, arm, rng).serve(pods[i, p]) for p in range(arm.pods)]
        for i, arm in enumerate(arms)
    ]
    return _paired(load, arms, served, windows)


Served = tuple[list[float], list[float], list[int], list[int], list[bool]]
"""Per request: when its first token came, TTFT, prompt tokens, cached tokens, failed."""


@dataclass(slots=True)
class _Pod:
    """One engine. `arm.slower` stretches its steps; `arm.hit_drop` is that share of prompts' misses."""

    load: TraceLoad
    arm: Arm
    rng: np.random.Generator
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    hits: float = 0.0
    prompts: float = 0.0
    roofline: Roofline = field(init=False)

    def __post_init__(self) -> None:
        self.roofline = Roofline(
            MODELS[self.load.model], GPUS[self.load.gpu], speed=1.0 / self.arm.slower
        )

    def serve(self, requests: list[tuple[float, Request]]) -> Served:
        """What each request saw, in the order of first tokens."""
        roofline = self.roofline
        arriving, waiting = deque(requests), deque[tuple[float, Request, int, int]]()
        running: list[list[int]] = []  # [tokens to come, context]
        done: Served = ([], [], [], [], [])
        now = 0.0
        while arriving or waiting or running:
            while arriving and arriving[0][0] <= now:
                at, request = arriving.popleft()
                cached = self._match(request)
                waiting.append((at, request, request.prompt - cached, cached))
            if waiting:
                at, request, left, cached = waiting[0]
                chunk = min(left, STEP_TOKENS)
                start = request.prompt - left
                context = sum(row[1] for row in running)
                now += roofline.seconds(
                    chunk + len(running),
                    context + start + chunk,
                    context + chunk * (start + (chunk + 1) / 2),
                )
                _advance(running, 1)
                if left > chunk:
                    waiting[0] = (at, request, left - chunk, cached)
                    continue
                waiting.popleft()
                self._ended(done, now, at, request, cached)
                running.append([request.output - 1, request.prompt])
            elif running:
                context = sum(row[1] for row in running)
                step = roofline.seconds(len(running), context, context)
                steps = max(1, min(row[0] for row in running))
                if arriving:
                    steps = min(steps, math.ceil((arriving[0][0] - now) / step))
                now += steps * step
                _advance(running, steps)
            else:
                now = arriving[0][0]
        return done

    def _ended(self, done: Served, now: float, at: float, request: Request, cached: int) -> None:
        values = (
            now,
            now - at,
            request.prompt,
            cached,
            bool(self.rng.random() < self.arm.error_rate),
        )
        for column, value in zip(done, values, strict=True):
            column.append(value)  # type: ignore[arg-type]

    def _match(self, request: Request) -> int:
        """Cached prompt tokens; the prompt's blocks are cached from now on."""
        matched = 0
        for block in request.blocks:
            if block not in self.cache:
                break
            matched += 1
        for block in request.blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.roofline.pages(BLOCK, CACHE_SHARE):
            self.cache.popitem(last=False)
        cached = min(matched * BLOCK, request.prompt - 1)
        self.hits += cached
        self.prompts += request.prompt
        rate = self.hits / self.prompts
        if self.arm.hit_drop and rate > 0 and self.rng.random() < self.arm.hit_drop / rate:
            return 0
        return cached


def _advance(running: list[list[int]], steps: int) -> None:
    for row in running:
        row[0] -= steps
        row[1] += steps
    running[:] = [row for row in running if row[0] > 0]


def _paired(
    load: TraceLoad, arms: tuple[Arm, ...], served: list[list[Served]], windows: int
) -> list[Window]:
    sides = []
    for arm, pods in zip(arms, served, strict=True):
        ends, ttft, prompt, cached, failed = (
            np.array([value for pod in pods for value in pod[i]]) for i in range(5)
        )
        at = np.floor(ends / load.window).astype(int)
        sides.append(
            windows_of(
                arm.pods, at, ttft, prompt.astype(float), cached.astype(float), failed == 1, windows
            )
        )
    start, length = (
        datetime.fromisoformat("2030-01-01T00:00:00+00:00"),
        timedelta(seconds=load.window),
    )
    return [
        Window(
            started_at=start + j * length,
            ended_at=start + (j + 1) * length,
            candidate=parts[0],
            baseline=parts[1] if len(parts) == 3 else None,
            stable=parts[-1],
        )
        for j, parts in enumerate(zip(*sides, strict=True))
    ]


assert EDGES[-1] == math.inf, "windows_of() counts into the server's buckets"
