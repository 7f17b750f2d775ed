"""The command line of the load generator: `python -m loadgen --url http://chat:8000 --duration 60`.

SIGTERM or SIGINT stops new requests, waits for those in flight and prints the report; exit status 0
means that the run itself worked, whatever became of the requests.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import time

from loadgen.client import Client
from loadgen.report import Report
from loadgen.workload import Workload, chats

__all__ = ["main"]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="loadgen", description=__doc__)
    parser.add_argument("--url", required=True, help="base URL of an OpenAI server, without /v1")
    parser.add_argument("--model", default="default", help="model name to ask for")
    parser.add_argument(
        "--chats-per-second", type=float, default=1.0, help="rate at which chats start"
    )
    parser.add_argument("--turns", type=int, default=3, help="mean turns a chat has")
    parser.add_argument(
        "--think", type=float, default=2.0, help="mean seconds between an answer and the next turn"
    )
    parser.add_argument("--groups", type=int, default=4, help="number of different system prompts")
    parser.add_argument("--system-words", type=int, default=300)
    parser.add_argument("--user-words", type=int, default=20)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument(
        "--duration", type=float, default=float("inf"), help="seconds; default: until SIGTERM"
    )
    parser.add_argument(
        "--progress", type=float, default=5.0, help="seconds between progress lines"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    for name in (
        "chats_per_second",
        "turns",
        "think",
        "groups",
        "system_words",
        "user_words",
        "max_tokens",
        "duration",
        "progress",
    ):
        if getattr(options, name) <= 0:
            parser.error(
                f"--{name.replace('_', '-')}: got {getattr(options, name)}, need a number above 0"
            )
    if not options.url.startswith(("http://", "https://")):
        parser.error(f"--url: got {options.url!r}, need http://HOST:PORT or https://HOST:PORT")
    return options


async def _run(options: argparse.Namespace) -> Report:
    load = Workload(
        chats_per_second=options.chats_per_second,
        turns=options.turns,
        think_seconds=options.think,
        groups=options.groups,
        system_words=options.system_words,
        user_words=options.user_words,
        max_tokens=options.max_tokens,
        seed=options.seed,
    )
    report, stopping = Report(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stopping.set)

    def sent() -> None:
        report.sent += 1

    client = Client(options.url, options.model, load, report.add, sent)
    try:
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(_progress(report, options.progress))
            running = set()
            begin = time.monotonic()
            for chat in chats(load):
                wait = begin + min(chat.starts_at, options.duration) - time.monotonic()
                if wait > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(stopping.wait(), wait)
                if stopping.is_set() or chat.starts_at >= options.duration:
                    break
                task = tasks.create_task(client.play(chat, stopping))
                running.add(task)
                task.add_done_callback(running.discard)
            stopping.set()
            if running:
                await asyncio.wait(running)
            progress.cancel()
    finally:
        await client.close()
    return report


async def _progress(report: Report, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        print(report.line("progress", time.time()), flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the load and print one JSON line each `--progress` seconds and a last one, the report."""
    report = asyncio.run(_run(_arguments(argv)))
    print(report.line("report", time.time()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
