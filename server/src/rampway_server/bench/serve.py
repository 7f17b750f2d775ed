"""`rampway-server bench serve`: any server behind the OpenAI API or SGLang's /generate, under load.

It puts load, client and figures together; flags have the names of vLLM's and SGLang's benchmarks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.bench.client import Target, send_all
from rampway_server.bench.figures import Condition, details_of, figures_of, render
from rampway_server.bench.load import DATASETS, Conversation, load_of
from rampway_server.bench.plot import write_plot
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from rampway_server.bench.client import Answer

__all__ = ["add_flags", "run"]

FAILED = 1
OBJECTIVES = ("ttft", "tpot", "e2el")
PROGRESS_SECONDS = 0.2


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench serve`."""
    _target_flags(parser.add_argument_group("server"))
    _dataset_flags(parser.add_argument_group("load"))
    _output_flags(parser.add_argument_group("output"))


def _target_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--base-url", help="instead of --host and --port")
    group.add_argument("--host", default="127.0.0.1", help="the server's address")
    group.add_argument("--port", type=int, default=8000, help="the server's port")
    group.add_argument(
        "--endpoint",
        default="/v1/completions",
        help="/v1/completions, /v1/chat/completions or /generate",
    )
    group.add_argument("--model", help="model id (default: the first of /v1/models)")
    group.add_argument("--header", nargs="*", default=[], metavar="NAME=VALUE")
    group.add_argument(
        "--extra-request-body", "--extra-body", type=json.loads, default={}, metavar="JSON"
    )
    group.add_argument("--disable-stream", action="store_true", help="ask for whole answers")
    group.add_argument(
        "--disable-ignore-eos", action="store_true", help="let answers end before their length"
    )
    group.add_argument("--timeout", type=float, default=600.0, help="seconds for one request")
    group.add_argument("--ready-check-timeout-sec", type=float, default=60.0)
    group.add_argument("--flush-cache", action="store_true", help="POST /flush_cache before")


def _dataset_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dataset-name", choices=DATASETS, default="random")
    group.add_argument("--dataset-path", type=Path, help="for mooncake, azure and jsonl")
    group.add_argument("--num-prompts", type=int, default=1000, help="conversations at most")
    group.add_argument("--random-input-len", type=int, default=1024)
    group.add_argument("--random-output-len", type=int, default=128)
    group.add_argument("--random-range-ratio", type=float, default=0.0)
    group.add_argument("--num-turns", type=int, default=4, help="of multi-turn")
    group.add_argument("--gsp-num-groups", type=int, default=64)
    group.add_argument("--gsp-prompts-per-group", type=int, default=16)
    group.add_argument("--gsp-system-prompt-len", type=int, default=2048)
    group.add_argument("--gsp-question-len", type=int, default=128)
    group.add_argument("--gsp-output-len", type=int, default=256)
    group.add_argument("--vocab-size", type=int, default=8192, help="ids are drawn below it")
    group.add_argument(
        "--request-rate", type=float, default=math.inf, help="requests/s; inf: all at once"
    )
    group.add_argument(
        "--burstiness", type=float, default=1.0, help="1 is Poisson, below is bursty"
    )
    group.add_argument(
        "--use-trace-timestamps", action="store_true", help="send when the trace did"
    )
    group.add_argument("--trace-slowdown", "--mooncake-slowdown-factor", type=float, default=1.0)
    group.add_argument("--max-concurrency", type=int, help="open requests at most")
    group.add_argument(
        "--warmup-requests", "--num-warmups", type=int, default=1, help="not counted"
    )
    group.add_argument("--seed", type=int, default=1)


def _output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-file", type=Path, help="append one JSON line there")
    group.add_argument(
        "--output-details", "--save-detailed", action="store_true", help="with every request"
    )
    group.add_argument("--metric-percentiles", default="90,95,99", help="such as 50,99,99.9")
    group.add_argument(
        "--goodput",
        "--slo",
        nargs="+",
        default=[],
        metavar="NAME:MS",
        help="ttft:200 tpot:50 e2el:5000",
    )
    group.add_argument(
        "--fail-if", action="append", default=[], metavar="KEY>NUMBER", help="exit 1 if it holds"
    )
    group.add_argument("--plot", type=Path, help=".html, or .png with matplotlib installed")
    group.add_argument("--tag", "--label", help="noted in the JSON")
    group.add_argument("--metadata", nargs="*", default=[], metavar="NAME=VALUE")
    group.add_argument("--disable-tqdm", action="store_true", help="no progress bar")


def run(args: argparse.Namespace) -> int:
    """Put the load on the server, print the figures, and return the exit status."""
    objectives, percentiles = _objectives(args.goodput), _percentiles(args.metric_percentiles)
    conditions = [Condition(text) for text in args.fail_if]
    load = load_of(args)
    headers = _pairs("--header", args.header)
    key = os.environ.get("OPENAI_API_KEY")
    if key:
        headers.setdefault("Authorization", f"Bearer {key}")
    url = (args.base_url or f"http://{args.host}:{args.port}").rstrip("/")
    model = args.model or _first_model(url, headers, args.ready_check_timeout_sec)
    target = Target(
        url,
        args.endpoint,
        model,
        stream=not args.disable_stream,
        ignore_eos=not args.disable_ignore_eos,
        timeout_seconds=args.timeout,
        extra_body=args.extra_request_body,
        headers=headers,
    )
    if args.flush_cache:
        _open(f"{url}/flush_cache", headers, b"")
    answers, duration = asyncio.run(_measure(args, target, load))
    figures = figures_of(answers, duration, objectives, percentiles)
    result = {**_header(args, model), **figures}
    if args.output_details:
        result |= details_of(answers)
    print(render(figures))  # noqa: T201 - its answer
    if args.output_file:
        with args.output_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
    if args.plot:
        write_plot(args.plot, answers)
    broken = [condition.text for condition in conditions if condition.holds(figures)]
    for text in broken:
        print(f"failed: {text} ({figures[Condition(text).key]})", file=sys.stderr)  # noqa: T201
    return FAILED if broken or not figures["completed"] else 0


async def _measure(
    args: argparse.Namespace, target: Target, load: list[Conversation]
) -> tuple[list[Answer], float]:
    warm_up = [Conversation(0.0, one.turns[:1]) for one in load[: args.warmup_requests]]
    if warm_up:
        await send_all(target, warm_up, None, lambda _: None)
    progress = _Progress(
        sum(len(one.turns) for one in load), shown=sys.stderr.isatty() and not args.disable_tqdm
    )
    start = time.perf_counter()
    answers = await send_all(target, load, args.max_concurrency, progress.note)
    progress.end()
    return answers, time.perf_counter() - start


class _Progress:
    """One line on a terminal: how many have ended, how many of them badly."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._total = total
        self._shown = shown
        self._done = self._failed = 0
        self._next = 0.0

    def note(self, answer: Answer) -> None:
        """Count an answer."""
        self._done += 1
        self._failed += bool(answer.error)
        if self._shown and time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_SECONDS
            self._draw()

    def end(self) -> None:
        """Leave the line complete."""
        if self._shown:
            self._draw()
            sys.stderr.write("\n")

    def _draw(self) -> None:
        filled = 30 * self._done // max(1, self._total)
        bar = "#" * filled + "." * (30 - filled)
        sys.stderr.write(f"\r[{bar}] {self._done}/{self._total} failed {self._failed}")
        sys.stderr.flush()


def _header(args: argparse.Namespace, model: str) -> dict[str, Any]:
    rate = "trace" if args.use_trace_timestamps else args.request_rate
    return {
        "date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"),
        "backend": "openai",
        "endpoint_type": args.endpoint,
        "label": args.tag,
        "tag": args.tag,
        "model_id": model,
        "tokenizer_id": None,
        "dataset_name": args.dataset_name,
        "num_prompts": args.num_prompts,
        "random_input_len": args.random_input_len,
        "random_output_len": args.random_output_len,
        "random_range_ratio": args.random_range_ratio,
        "request_rate": "inf" if rate == math.inf else rate,
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        "seed": args.seed,
        **_pairs("--metadata", args.metadata),
    }


def _objectives(pairs: list[str]) -> dict[str, float]:
    try:
        found = {name: float(value) for name, value in (pair.split(":") for pair in pairs)}
    except ValueError:
        found = {"": 0.0}
    if not set(found) <= set(OBJECTIVES):
        raise UsageError(
            f"--goodput is not understood: got {' '.join(pairs)!r}, need ttft:MS, tpot:MS or e2el:MS"
        )
    return found


def _percentiles(text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = [-1.0]
    if not all(0 <= share <= 100 for share in shares):
        raise UsageError(f"--metric-percentiles is no list: got {text!r}, need 50,99, for example")
    return shares


def _pairs(flag: str, pairs: list[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    for name, sign, _ in split:
        if not sign or not name:
            raise UsageError(f"{flag} is no pair: got {name!r}, need NAME=VALUE")
    return {name: value for name, _, value in split}


def _first_model(url: str, headers: dict[str, str], timeout_seconds: float) -> str:
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            model: str = json.loads(_open(f"{url}/v1/models", headers))["data"][0]["id"]
        except (UsageError, ValueError, KeyError, IndexError) as error:
            if time.monotonic() >= deadline:
                raise UsageError(
                    f"{url}/v1/models names no model ({error}): start the server, or give --model"
                ) from error
            time.sleep(0.5)
        else:
            return model


def _open(url: str, headers: dict[str, str], data: bytes | None = None) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--base-url is no web address: got {url!r}, need http://HOST:PORT")
    request = urllib.request.Request(url, data, headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - checked above
            body: bytes = response.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise UsageError(
            f"{url} does not answer: {error}; is the server up and the key right?"
        ) from error
    return body
