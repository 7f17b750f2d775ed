"""`rampway-server bench step`: what scheduler and prefix cache cost the host in one decode step.

It knows no device: every step's tokens are made up beforehand. CPU time of the thread is measured,
so that a busy machine does not count.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.cache.select import open_cache
from rampway_server.engine.batch import Sample, Sampling, StepResult
from rampway_server.engine.request import Request
from rampway_server.engine.scheduler import Scheduler, SchedulerLimits

if TYPE_CHECKING:
    import argparse

__all__ = ["StepFigures", "add_flags", "measure", "run"]

PAGE = 16
VOCABULARY = 32_000
WARM_UP_STEPS = 50
STEP_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One run; microseconds of the engine thread's CPU time a step."""

    sequences: int
    backend: str
    steps: int
    median_us: float
    p99_us: float
    schedule_us: float
    """Median of planning the step."""
    update_us: float
    """Median of taking its result and reading the cache's counts."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench step`."""
    parser.add_argument(
        "--sequences", type=int, nargs="+", default=[1, 64, 256], help="running sequences"
    )
    parser.add_argument("--prompt", type=int, default=512, help="prompt tokens of each")
    parser.add_argument("--steps", type=int, default=2000, help="decode steps to measure")
    parser.add_argument("--prefix-cache", choices=("rust", "python", "off"), default="rust")
    parser.add_argument("--json", type=Path, help="write the figures there too")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and return the exit status."""
    rows = [measure(n, args.prompt, args.steps, args.prefix_cache) for n in args.sequences]
    lines = [
        f"cache {args.prefix_cache}, prompts of {args.prompt} tokens, CPU time of the thread\n",
        "| sequences | a step, median | P99 | schedule | update |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.sequences} | {r.median_us:.0f} us | {r.p99_us:.0f} us"
        f" | {r.schedule_us:.0f} us | {r.update_us:.0f} us |"
        for r in rows
    ]
    print("\n".join(lines))  # noqa: T201 - its answer
    if args.json:
        figures = [asdict(row) for row in rows]
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def measure(sequences: int, prompt: int, steps: int, backend: str) -> StepFigures:
    """Return the figures of `steps` decode steps with this many sequences, none of them ending."""
    # All prompts must be through before the first answer ends.
    prefill_steps = 1 + sequences * prompt // STEP_TOKENS
    length = prompt + steps + WARM_UP_STEPS + 2 * prefill_steps + PAGE
    pages = 2 * sequences * -(-length // PAGE)
    cache = open_cache(backend, pages, PAGE, require_rust=backend == "rust").cache
    scheduler = Scheduler(cache, SchedulerLimits(sequences, STEP_TOKENS))
    random = np.random.default_rng(0)
    for number in range(sequences):
        scheduler.add(
            Request(
                id=number,
                prompt=random.integers(1, VOCABULARY, prompt).astype(np.int32),
                sampling=Sampling(temperature=0.0),
                max_new_tokens=length - prompt,
                arrived=0.0,
                stop_ids=frozenset({0}),
            )
        )
    drawn = Sample(5)
    plans: list[int] = []
    updates: list[int] = []
    while len(plans) < WARM_UP_STEPS + steps:
        started = time.thread_time_ns()
        plan = scheduler.schedule(0.0)
        batch = plan.batch()
        planned = time.thread_time_ns() - started
        result = StepResult(tuple(drawn if row.sampling else None for row in batch.rows))
        started = time.thread_time_ns()
        scheduler.update(plan, result)
        cache.stats()
        updated = time.thread_time_ns() - started
        if plan.decodes == sequences:
            plans.append(planned)
            updates.append(updated)
    parts = 1e-3 * np.array([plans, updates])[:, WARM_UP_STEPS:]
    both = parts.sum(axis=0)
    return StepFigures(
        sequences,
        backend,
        steps,
        median_us=float(np.median(both)),
        p99_us=float(np.quantile(both, 0.99)),
        schedule_us=float(np.median(parts[0])),
        update_us=float(np.median(parts[1])),
    )
