"""`rampway-server bench cache`: our prefix cache and its peers, asked the same, in turns.

It knows cases and targets; how each contestant is called is its adapter's affair.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.bench.fleet import Fleet
from rampway_server.bench.peers import PEERS_FOLDER
from rampway_server.bench.table import Claim, claims_of, render
from rampway_server.bench.worker import CONTESTANTS

if TYPE_CHECKING:
    import argparse

__all__ = ["Results", "add_flags", "run"]


@dataclass(frozen=True, slots=True)
class Case:
    """One row: its name, the worker's case with its sizes, and samples in a round."""

    name: str
    request: dict[str, Any]
    samples: int
    slow_samples: int
    only: frozenset[str] = frozenset(CONTESTANTS)


SLOW = frozenset({"python", "sglang-python", "vllm"})
ALL = frozenset(CONTESTANTS) - {"rust-i64"}
CASES = (
    Case("hit 1,024 tokens", {"case": "hit", "tokens": 1024, "nodes": 1}, 400, 50, ALL),
    Case("hit 8,192 tokens", {"case": "hit", "tokens": 8192, "nodes": 1}, 400, 30),
    Case("hit 8,192 in 16 nodes", {"case": "hit", "tokens": 8192, "nodes": 16}, 400, 30, ALL),
    Case("hit 8,192 in 512 nodes", {"case": "hit", "tokens": 8192, "nodes": 512}, 100, 10, ALL),
    Case("hit 8,192, cold", {"case": "cold", "tokens": 8192}, 200, 20, ALL - {"python", "vllm"}),
    Case("hit 131,072 tokens", {"case": "hit", "tokens": 131_072, "nodes": 1}, 50, 3, ALL),
    Case("miss at token 0 of 8,192", {"case": "miss", "tokens": 8192}, 400, 30),
    Case("lock + unlock 8,192", {"case": "lock", "tokens": 8192, "nodes": 1}, 400, 30, ALL),
    Case("evict 64, 1,000 leaves", {"case": "evict", "leaves": 1000}, 100, 20, ALL),
    Case("evict 64, 40,000 leaves", {"case": "evict", "leaves": 40_000}, 100, 6, ALL),
)
CORE_CASES = (
    *("hit-1", "hit-16", "hit-512", "hit-forked-512", "hit-wide-ids", "hit-cold", "hit-long"),
    *("lock-512", "miss", "miss-wide", "evict-1k", "evict-40k", "evict-1m", "insert", "churn"),
)
CORE_SAMPLES = 1000
REPLAYED = ALL | {"rust-i64"}


@dataclass(slots=True)
class Results:
    """Everything measured: medians of the rounds' medians, in nanoseconds."""

    machine: dict[str, Any]
    rounds: int
    cases: dict[str, dict[str, float]] = field(default_factory=dict)
    """By case and contestant."""
    core: dict[str, dict[str, float]] = field(default_factory=dict)
    """By case of the Rust crate's own example: `ns`, `floor_ns`, `nodes`."""
    replay_us: dict[str, dict[str, float]] = field(default_factory=dict)
    """By trace and contestant: microseconds a request."""
    hit_rate: dict[str, dict[str, float]] = field(default_factory=dict)
    """By trace and contestant: the whole trace, ours with sizes checked after every operation."""
    parity: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By trace and contestant: whether it finds, request by request, what ours does when nothing
    has to be evicted."""
    skipped: dict[str, str] = field(default_factory=dict)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench cache`."""
    parser.add_argument("--rounds", type=int, default=5, help="turns that everyone gets")
    parser.add_argument(
        "--peers", type=Path, default=PEERS_FOLDER, help="folder made by rampway_server.bench.peers"
    )
    parser.add_argument(
        "--core", type=Path, help="the crate's example `cases`: adds the rows without Python"
    )
    parser.add_argument(
        "--trace", type=Path, action="append", default=[], help="Mooncake trace; repeatable"
    )
    parser.add_argument(
        "--requests", type=int, default=3000, help="requests of a trace that are timed"
    )
    parser.add_argument(
        "--full", action="store_true", help="hit rates of whole traces, peers too: takes minutes"
    )
    parser.add_argument("--pool-tokens", type=int, default=4_000_000, help="size of the caches")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument(
        "--fail-on-miss", action="store_true", help="exit with 1 when a target is missed"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and return the exit status."""
    folder = args.peers.expanduser()
    results = Results(_machine(), args.rounds)
    with Fleet(tuple(CONTESTANTS), folder) as fleet:
        _micro(fleet, args, results)
        for trace in args.trace:
            _replays(fleet, trace.expanduser().resolve(), args, results)
        results.skipped = fleet.skipped
    if args.core is None:
        results.skipped["core"] = "--core is not given: no rows without Python"
    claims = claims_of(results)
    print(render(results, claims))  # noqa: T201 - its answer
    if args.json:
        _write(args.json, results, claims)
    missed = [claim for claim in claims if not claim.met]
    return 1 if missed and args.fail_on_miss else 0


def _micro(fleet: Fleet, args: argparse.Namespace, results: Results) -> None:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    core: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(args.rounds):
        for case in CASES:
            for name in fleet.members:
                if name not in case.only:
                    continue
                samples = case.slow_samples if name in SLOW else case.samples
                answer = fleet.ask(name, **case.request, samples=samples)
                if answer is not None:
                    times[case.name, name].append(answer["ns"])
        if args.core is not None:
            for name in CORE_CASES:
                core[name].append(_core(args.core, name))
    for (case_name, name), medians in times.items():
        results.cases.setdefault(case_name, {})[name] = statistics.median(medians)
    for name, rows in core.items():
        results.core[name] = {
            key: statistics.median(row[key] for row in rows) for key in ("ns", "floor_ns", "nodes")
        }


def _core(binary: Path, case: str) -> dict[str, float]:
    """Run one case of the crate's example."""
    done = subprocess.run(  # noqa: S603 - the user named it
        [str(binary.resolve()), case, str(CORE_SAMPLES)], check=True, capture_output=True, text=True
    )
    row: dict[str, float] = json.loads(done.stdout)
    return row


def _replays(fleet: Fleet, trace: Path, args: argparse.Namespace, results: Results) -> None:
    request = {"case": "replay", "trace": str(trace)}
    timed = {**request, "capacity": args.pool_tokens, "limit": args.requests, "check": False}
    runs: dict[str, list[list[int]]] = defaultdict(list)
    for turn in range(args.rounds):
        for name in fleet.members:
            # Slow ones get fewer turns: what disturbs a measurement disturbs them less.
            if name in REPLAYED and (turn < 3 or name not in SLOW):
                answer = fleet.ask(name, **timed)
                if answer is not None:
                    runs[name].append(answer["ns"])
    # A request's median over the turns, which do the same from the first request to the last.
    results.replay_us[trace.stem] = {
        name: statistics.fmean(map(statistics.median, zip(*turns, strict=True))) / 1000
        for name, turns in runs.items()
    }
    limit = None if args.full else args.requests
    rates = {**request, "capacity": args.pool_tokens, "limit": limit, "check": True}
    endless = {**request, "capacity": 20_000_000, "limit": 1000, "check": False}
    mine = fleet.ask("rust", **endless)
    for name in fleet.members:
        if name == "rust-i64":
            continue
        answer = fleet.ask(name, **rates)
        if answer is not None:
            results.hit_rate.setdefault(trace.stem, {})[name] = answer["hit_rate"]
        theirs = fleet.ask(name, **endless)
        if mine is not None and theirs is not None:
            same = mine["found"] == theirs["found"]
            results.parity.setdefault(trace.stem, {})[name] = same


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _write(path: Path, results: Results, claims: list[Claim]) -> None:
    figures = asdict(results) | {"targets": [asdict(claim) for claim in claims]}
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
