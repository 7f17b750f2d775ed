"""Measures one contestant in a process of its own: one JSON request a line in, one answer a line out.

It knows how a case is set up and timed, and nothing of the other contestants.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import statistics
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.bench.adapters.contract import PAGE, MissingError, timed
from rampway_server.bench.workloads import read_trace, text, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from rampway_server.bench.adapters.contract import Contestant

__all__ = ["CONTESTANTS", "Worker", "main"]

CONTESTANTS = {
    "rust": "ours:open_rust",
    "rust-i64": "ours:open_rust_wide",
    "python": "ours:open_python",
    "sglang-rust": "sglang:open_rust_core",
    "sglang-python": "sglang:open_python_tree",
    "vllm": "vllm:open_block_pool",
}
"""Module and function of each contestant; those of peers take the folder of their wheels too."""
PEERS = frozenset({"sglang-rust", "sglang-python", "vllm"})
LEAF = 96
"""Tokens of a leaf in the eviction cases."""
COLD_TEXTS = 2048
BATCH = 16


class Worker:
    """Cases by name; what a case has set up stays for its next turn."""

    def __init__(self, opener: Callable[[int], Contestant]) -> None:
        self._open = opener
        self._ready: dict[str, Callable[[int], list[float]]] = {}
        # What the clock and a call through an adapter cost by themselves is nobody's fault.
        idle = _Idle().find
        self._clock = statistics.median([timed(partial(idle, None), 1)[0] for _ in range(2000)])
        self._call = statistics.median(
            [_together(partial(idle, None), BATCH)[0] for _ in range(200)]
        )

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; `case` names it, the rest are its sizes."""
        case, samples = request.pop("case"), request.pop("samples", 0)
        if case == "replay":
            return self._replay(**request)
        name = json.dumps([case, request], sort_keys=True)
        if name not in self._ready:
            self._ready[name] = getattr(self, f"_{case}")(**request)
            gc.collect()
            gc.freeze()
        times = self._ready[name](samples)
        return {"ns": statistics.median(times) - self._clock}

    def _hit(self, tokens: int, nodes: int) -> Callable[[int], list[float]]:
        cache = self._open(2 * tokens + PAGE)
        whole = text(1, tokens)
        key = cache.key(whole)
        cache.put(key)
        for part in range(1, nodes):
            cache.find(cache.key(whole[: part * (tokens // nodes)]))
            cache.let_go()
        return partial(_finding, cache, [key], tokens)

    def _cold(self, tokens: int) -> Callable[[int], list[float]]:
        cache = self._open(COLD_TEXTS * tokens + PAGE)
        keys = [cache.key(text(seed, tokens)) for seed in range(COLD_TEXTS)]
        for key in keys:
            cache.put(key)
        # 769 and the number of texts have no common factor: each comes once, far from the last.
        order = [keys[at * 769 % COLD_TEXTS] for at in range(COLD_TEXTS)]
        return partial(_finding, cache, order, tokens)

    def _miss(self, tokens: int) -> Callable[[int], list[float]]:
        cache = self._open(2 * tokens + PAGE)
        cached, other = text(1, tokens), text(1, tokens)
        cache.put(cache.key(cached))
        other[0] += 1
        key = cache.key(other)
        call, own = cache.looking_up(key), self._clock - self._call

        def miss(samples: int) -> list[float]:
            """Many in a row: one takes hardly longer than the clock."""
            if cache.find(key):
                raise AssertionError("contestant found a text that is not there")
            cache.let_go()
            times = []
            for _ in range(samples):
                took, found = _together(call, BATCH)
                times.append(took + own)
                cache.let_go_of(found)
            return times

        return miss

    def _lock(self, tokens: int, nodes: int) -> Callable[[int], list[float]]:
        cache = self._open(2 * tokens + PAGE)
        whole = text(1, tokens)
        key = cache.key(whole)
        cache.put(key)
        for part in range(1, nodes):
            cache.find(cache.key(whole[: part * (tokens // nodes)]))
            cache.let_go()
        clock = self._clock

        def lock(samples: int) -> list[float]:
            return [time + clock for time in cache.lock_unlock(key, samples)]

        return lock

    def _evict(self, leaves: int) -> Callable[[int], list[float]]:
        cache = self._open(leaves * LEAF)
        seeds = count()
        for _ in range(leaves):
            cache.put(cache.key(text(next(seeds), LEAF)))

        def evict(samples: int) -> list[float]:
            times = []
            for _ in range(samples):
                times += timed(partial(cache.evict, 64), 1)
                cache.put(cache.key(text(next(seeds), LEAF)))
            return times

        return evict

    def _replay(
        self, trace: str, capacity: int, limit: int | None, *, check: bool
    ) -> dict[str, Any]:
        """Serve a trace; the hit rate, and the nanoseconds of each request.

        Texts are made in portions before they are timed, so that making one does not warm it up.
        """
        portion = 250
        cache = self._open(capacity)
        if check:
            cache.watch()
        arrivals = read_trace(Path(trace), limit)
        times: list[int] = []
        hits: list[int] = []
        for start in range(0, len(arrivals), portion):
            keys = [cache.key(tokens) for tokens in texts_of(arrivals[start : start + portion])]
            gc.collect()
            for key in keys:
                matched, took = cache.serve(key)
                hits.append(matched)
                times.append(took)
        total = sum(arrival.input_length for arrival in arrivals)
        return {
            "hit_rate": sum(hits) / total,
            "ns": times,
            "found": hits,
        }


def _together(call: Callable[[], Any], calls: int) -> tuple[float, list[Any]]:
    """Return nanoseconds a call of several in a row, and their results."""
    start = time.perf_counter_ns()
    found = [call() for _ in range(calls)]
    return (time.perf_counter_ns() - start) / calls, found


class _Idle:
    """Finds nothing, at once."""

    def find(self, key: Any) -> int:
        """Return 0."""
        del key
        return 0


def _finding(cache: Contestant, keys: list[Any], expected: int, samples: int) -> list[float]:
    times = []
    for at in range(samples):
        key = keys[at % len(keys)]
        times += timed(partial(cache.find, key), 1)
        cache.let_go()
    if cache.find(keys[0]) != expected:
        raise AssertionError(f"contestant found another length than {expected}")
    cache.let_go()
    return times


def opener_of(name: str, folder: Path) -> Callable[[int], Contestant]:
    """Return how to make the contestant of a given capacity in tokens; imports its adapter."""
    module, _, function = CONTESTANTS[name].partition(":")
    adapter = importlib.import_module(f"rampway_server.bench.adapters.{module}")
    found: Callable[..., Contestant] = getattr(adapter, function)
    return partial(found, folder=folder) if name in PEERS else found


def main() -> None:
    """Serve requests from standard input; answers go to standard output, all else to the error."""
    name, folder, cpu = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            opener = opener_of(name, folder)
            opener(64 * PAGE)
            worker = Worker(opener)
            answer: dict[str, Any] = {"ready": name}
        except MissingError as error:
            answer = {"missing": str(error)}
        print(json.dumps(answer), file=answers, flush=True)
        for line in sys.stdin:
            try:
                answer = worker.answer(json.loads(line))
            except Exception as error:  # reported to the other side
                answer = {"error": repr(error)}
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
