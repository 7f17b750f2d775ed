"""Every flag of `rampway-server`: names, defaults, help, and one line for a wrong one.

It knows no meaning: what values may be together is for `settings`.
"""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import NoReturn

from rampway_server.api.dialect import REASONING_PARSERS, TOOL_CALL_PARSERS
from rampway_server.bench.cli import add_bench
from rampway_server.engine.roofline import GPUS, MODELS
from rampway_server.logs import LEVELS
from rampway_server.telemetry_dialects import DIALECTS

__all__ = ["CACHE_BACKENDS", "DEVICES", "build_parser", "one_line"]

DEVICES = ("auto", "cpu", "cuda", "simulated", *(f"simulated:{gpu}" for gpu in GPUS))
DTYPES = ("auto", "float32", "bfloat16", "float16")
CACHE_BACKENDS = ("rust", "python", "off")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `rampway-server`."""
    parser = _Parser(
        prog="rampway-server",
        description="Paged, continuously batching LLM server behind an OpenAI API.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("info", help="print what is installed here as JSON", allow_abbrev=False)
    serve = commands.add_parser(
        "serve",
        help="serve one model",
        description="Serve one model over HTTP until SIGTERM, then drain and exit with 0.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    for add in (_model_flags, _engine_flags, _http_flags, _limit_flags):
        add(serve)
    add_bench(commands)
    return parser


def _model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and device")
    group.add_argument(
        "--model",
        metavar="PATH|NAME",
        help="a .gguf file or a Hugging Face folder; on the simulated device only a name",
    )
    group.add_argument(
        "--served-model-name",
        metavar="NAME",
        help="model id in the API (default: the file's or folder's name)",
    )
    group.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda, simulated[:a100|h100|h200|b200], or simulated:instant for tests",
    )
    group.add_argument("--dtype", choices=DTYPES, default="auto", help="weights, KV, activations")
    group.add_argument(
        "--simulated-model",
        default="llama-3-8b",
        metavar="NAME|PATH",
        help=f"shape on the simulated device: {', '.join(MODELS)}, or a config.json",
    )
    group.add_argument(
        "--simulated-speed", type=float, default=1.0, help="0.6 takes 1/0.6 of the time"
    )
    group.add_argument(
        "--context-length",
        "--max-model-len",
        type=int,
        help="longest prompt + answer in tokens (default: the model's, cut to what the pool holds)",
    )
    group.add_argument("--threads", type=int, help="CPU threads of the tensor library")
    group.add_argument(
        "--kernels",
        choices=("auto", "reference", "triton"),
        default="auto",
        help="auto is Triton on cuda and the torch references on cpu",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="make a row's text independent of the batch it is computed in",
    )


def _engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--max-num-seqs", "--max-running-requests", type=int, default=256, help="running sequences"
    )
    group.add_argument(
        "--max-num-batched-tokens", type=int, default=2048, help="tokens computed in one step"
    )
    group.add_argument(
        "--disable-overlap-schedule",
        action="store_true",
        help="plan a step only when the one before it has ended (on cpu always so)",
    )
    group.add_argument("--page-size", type=int, default=16, help="tokens in a KV page")
    group.add_argument("--num-pages", type=int, help="pages of the KV pool (default: from memory)")
    group.add_argument(
        "--mem-fraction-static",
        type=float,
        help="share of the memory left beside the weights that the KV pool may take",
    )
    group.add_argument(
        "--prefix-cache",
        choices=CACHE_BACKENDS,
        help="implementation, or off (default: RAMPWAY_PREFIX_CACHE, else rust)",
    )
    group.add_argument(
        "--require-rust-cache",
        action="store_true",
        help="refuse to start when the Rust cache is missing",
    )


def _http_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("HTTP")
    group.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod is probed from outside
    group.add_argument("--port", type=int, default=8000, help="API port; 0 takes a free one")
    group.add_argument(
        "--metrics-port", type=int, default=9400, help="port of /metrics alone; 0 takes a free one"
    )
    group.add_argument(
        "--metrics-dialect",
        choices=tuple(DIALECTS),
        help="show the figures under this engine's names, too",
    )
    group.add_argument(
        "--api-key-file",
        type=Path,
        action="append",
        metavar="PATH",
        help="one `tenant:key` or `key` a line; repeatable; without it the API is open",
    )
    group.add_argument(
        "--admin-key-file", type=Path, metavar="PATH", help="keys that may flush the cache"
    )
    group.add_argument(
        "--tool-call-parser",
        choices=TOOL_CALL_PARSERS,
        default="auto",
        help="format of the model's tool calls; auto reads its chat template",
    )
    group.add_argument(
        "--reasoning-parser",
        choices=REASONING_PARSERS,
        default="auto",
        help="split <think> text off the answer; auto reads the chat template",
    )
    group.add_argument("--log-level", choices=LEVELS, default="info", help="least severe line")


def _limit_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits and drain")
    group.add_argument(
        "--max-queued-requests", type=int, default=1024, help="waiting sequences before 429"
    )
    group.add_argument(
        "--max-queued-tokens",
        type=int,
        help="waiting prompt tokens before 429 (default: one minute of this device's prefill)",
    )
    group.add_argument(
        "--queue-timeout", type=float, default=60.0, help="seconds a request may wait, then 503"
    )
    group.add_argument(
        "--request-timeout", type=float, default=600.0, help="seconds a request may take, then 504"
    )
    group.add_argument(
        "--drain-delay", type=float, default=5.0, help="seconds of accepting after SIGTERM"
    )
    group.add_argument(
        "--drain-timeout",
        type=float,
        default=60.0,
        help="seconds that running requests get after the drain delay",
    )
    group.add_argument("--max-connections", type=int, default=4096, help="open connections")


class _Parser(argparse.ArgumentParser):
    """One line on stderr instead of the usage text, with the nearest flag as remedy."""

    def error(self, message: str) -> NoReturn:
        prefix = "unrecognized arguments: "
        if message.startswith(prefix):
            flag = message.removeprefix(prefix).split()[0].split("=")[0]
            near = difflib.get_close_matches(flag, self.known_flags(), n=1)
            hint = f"did you mean {near[0]}?" if near else "see --help for all flags"
            message = f"flag is unknown: got {flag!r}; {hint}"
        self.exit(2, f"{self.prog}: error: {one_line(message)}\n")

    def known_flags(self) -> list[str]:
        """Return this parser's flags and its commands'."""
        flags = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - no public name
                for parser in action.choices.values():
                    flags += parser._option_string_actions  # noqa: SLF001
        return flags


def one_line(text: str) -> str:
    """Return `text` without line breaks: one fault, one line."""
    return " ".join(text.split())
