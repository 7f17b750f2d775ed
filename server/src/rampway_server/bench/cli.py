"""`rampway-server bench`: which benchmark, with which flags.

It imports a benchmark only when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

__all__ = ["add_bench", "run_bench"]

BENCHMARKS = {
    "cache": "the prefix cache against its reference and its peers",
    "kernels": "every Triton kernel on this GPU against a device copy and torch",
    "serve": "any server behind the OpenAI API or SGLang's /generate",
    "step": "the scheduler's and the cache's part of a decode step",
    "ttft": "time to first token of the server, Rust cache against Python cache",
}


def add_bench(commands: Any) -> None:
    """Add `bench` and its benchmarks to the commands of `rampway-server`."""
    bench = commands.add_parser("bench", help="measure", allow_abbrev=False)
    names = bench.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, text in BENCHMARKS.items():
        parser = names.add_parser(name, help=text, description=text, allow_abbrev=False)
        import_module(f"rampway_server.bench.{name}").add_flags(parser)


def run_bench(args: argparse.Namespace) -> int:
    """Run the benchmark and return its exit status."""
    status: int = import_module(f"rampway_server.bench.{args.benchmark}").run(args)
    return status
