"""`rampway-server bench ttft`: the same server with the Rust and with the Python cache, in turns.

Knows the wire, not the server's inside. Every request is streamed; time to first token runs from
before the connection is opened to the first piece of text.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.bench.workloads import read_trace, text, texts_of
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Row", "add_flags", "run"]

SYSTEM_PROMPT, QUESTION, ANSWER = 500, 100, 16
"""Tokens of the shared prompt, of what follows it, and of the answer."""
BACKENDS = ("rust", "python")
TITLES = (
    *("workload", "open", "cache", "requests/s", "TTFT P50", "TTFT P99", "P99 with Rust"),
    *("GC pauses", "longest"),
)
CLAIM = "public claim: P99 down 35 % at 128 concurrent requests that share a system prompt"


@dataclass(frozen=True, slots=True)
class Row:
    """One run. Times in milliseconds."""

    workload: str
    concurrency: int
    backend: str
    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    requests_a_second: float
    gc_collections: int
    gc_ms: float
    gc_longest_ms: float


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench ttft`."""
    parser.add_argument(
        "--concurrency", type=int, nargs="+", default=[1, 32, 128, 512], help="open requests"
    )
    parser.add_argument("--trace", type=Path, help="Mooncake trace: adds its prompts as a workload")
    parser.add_argument("--device", default="simulated:h100", help="a simulated device")
    parser.add_argument("--simulated-speed", type=float, default=1.0, help="as for serve")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each cache")
    parser.add_argument("--requests", type=int, default=256, help="at least, in a run")
    parser.add_argument("--json", type=Path, help="write the figures there too")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and return the exit status."""
    if not args.device.startswith("simulated"):
        raise UsageError(f"--device is not simulated: got {args.device!r}, need simulated:h100")
    rows = []
    for concurrency in args.concurrency:
        count = max(args.requests, 2 * concurrency)
        for workload, prompts in _workloads(args.trace, count):
            turns: dict[str, list[Row]] = {backend: [] for backend in BACKENDS}
            for _ in range(args.rounds):
                for backend, done in turns.items():
                    done.append(_one_run(args, workload, backend, concurrency, prompts))
            rows += [_median(done) for done in turns.values()]
    print(_render(rows, args))  # noqa: T201 - its answer
    if args.json:
        figures = [asdict(row) for row in rows]
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 1 if any(row.failed for row in rows) else 0


def _workloads(trace: Path | None, count: int) -> Iterator[tuple[str, list[str]]]:
    shared = _letters(text(0, SYSTEM_PROMPT))
    yield (
        "shared system prompt",
        [shared + _letters(text(seed, QUESTION)) for seed in range(1, count + 1)],
    )
    if trace is not None:
        arrivals = read_trace(trace.expanduser(), count)
        yield trace.stem, [_letters(tokens) for tokens in texts_of(arrivals)]


def _letters(tokens: NDArray[Any]) -> str:
    """Return one letter a token: the simulated device's tokenizer knows bytes."""
    letters: bytes = (tokens % 26 + ord("a")).astype("u1").tobytes()
    return letters.decode("ascii")


def _one_run(
    args: argparse.Namespace, workload: str, backend: str, concurrency: int, prompts: list[str]
) -> Row:
    # Other texts: what they warm is code, not the cache.
    warm_up = [_letters(text(10**6 + n, QUESTION)) for n in range(16)]
    with _server(args, backend) as (port, counts):
        asyncio.run(_load(port, 4, warm_up))
        started = time.perf_counter()
        times = asyncio.run(_load(port, concurrency, prompts))
        took = time.perf_counter() - started
    done = sorted(seconds for seconds in times if seconds is not None)
    pauses = json.loads(counts.read_text(encoding="utf-8")) if counts.exists() else {}
    counts.unlink(missing_ok=True)
    return Row(
        workload,
        concurrency,
        backend,
        requests=len(prompts),
        failed=len(prompts) - len(done),
        p50_ms=1000 * _quantile(done, 0.5),
        p99_ms=1000 * _quantile(done, 0.99),
        requests_a_second=len(done) / took,
        gc_collections=sum(pauses.get("collections", ())),
        gc_ms=1000 * pauses.get("seconds", 0.0),
        gc_longest_ms=pauses.get("longest_ms", 0.0),
    )


@contextmanager
def _server(args: argparse.Namespace, backend: str) -> Iterator[tuple[int, Path]]:
    """Yield the port of a server that is ready, and where its pauses are written when it ends."""
    port = _free_port()
    counts = Path(tempfile.gettempdir()) / f"rampway-bench-{os.getpid()}-{port}.json"
    command = [
        *(sys.executable, "-m", "rampway_server.bench.watched", str(counts), "serve"),
        *("--device", args.device, "--simulated-speed", str(args.simulated_speed)),
        *("--host", "127.0.0.1", "--port", str(port), "--metrics-port", "0"),
        *("--prefix-cache", backend, "--max-num-seqs", "512", "--drain-delay", "0"),
        *("--max-queued-tokens", str(10**9), "--queue-timeout", "600", "--log-level", "error"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - our own server
    try:
        _wait_until_ready(process, port)
        yield port, counts
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n")
                if b" 200 " in connection.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise UsageError("the server of this benchmark did not become ready within 60 s")


async def _load(port: int, concurrency: int, prompts: list[str]) -> list[float | None]:
    """Keep `concurrency` requests open until every prompt was answered; None for a failed one."""
    times: list[float | None] = []
    waiting = iter(prompts)

    async def one_client() -> None:
        for prompt in waiting:
            seconds = await _ask(port, prompt)
            times.append(seconds)

    await asyncio.gather(*(one_client() for _ in range(concurrency)))
    return times


async def _ask(port: int, prompt: str) -> float | None:
    """Return the seconds to the first piece of text of one answer, read to its end."""
    body = json.dumps(
        {"prompt": prompt, "max_tokens": ANSWER, "ignore_eos": True, "stream": True}
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    start = time.perf_counter()
    first = None
    ended = False
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head + body)
        while line := await reader.readline():
            ended = ended or line.startswith(b"data: [DONE]")
            if first is None and line.startswith(b'data: {"'):
                first = time.perf_counter() - start
        writer.close()
    except OSError:
        return None
    return first if ended else None


def _quantile(done: list[float], share: float) -> float:
    """Return the value below which this share lies: of raw samples, never of quantiles."""
    if not done:
        return float("nan")
    return done[min(len(done) - 1, int(share * len(done)))]


def _median(turns: list[Row]) -> Row:
    def middle(name: str) -> float:
        values: list[float] = [getattr(row, name) for row in turns]
        return statistics.median(values)

    names = ("p50_ms", "p99_ms", "requests_a_second", "gc_ms", "gc_longest_ms")
    first = asdict(turns[0]) | {name: round(middle(name), 3) for name in names}
    first["gc_collections"] = int(middle("gc_collections"))
    return Row(**(first | {"failed": sum(row.failed for row in turns)}))


def _render(rows: list[Row], args: argparse.Namespace) -> str:
    lines = [
        (
            f"{args.device}, speed {args.simulated_speed:g}, {os.cpu_count()} cores for server and clients,"
            f" medians of {args.rounds} turns; GC is counted over the server's whole life\n"
        ),
        f"| {' | '.join(TITLES)} |",
        "|" + "---|" * len(TITLES),
    ]
    python = {(r.workload, r.concurrency): r for r in rows if r.backend == "python"}
    for row in rows:
        other = python.get((row.workload, row.concurrency))
        change = "-"
        if row.backend == "rust" and other is not None and other.p99_ms:
            change = f"{100 * (row.p99_ms / other.p99_ms - 1):+.0f} %"
        lines.append(
            f"| {row.workload} | {row.concurrency} | {row.backend} | {row.requests_a_second:.1f}"
            f" | {row.p50_ms:.1f} ms | {row.p99_ms:.1f} ms | {change}"
            f" | {row.gc_collections} in {row.gc_ms:.0f} ms | {row.gc_longest_ms:.1f} ms |"
        )
    return "\n".join([*lines, "", CLAIM])
