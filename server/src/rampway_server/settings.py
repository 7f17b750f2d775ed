"""Command line and environment in, frozen settings out; all faults at once, each with its remedy.

It reads flags, file headers and ports' numbers only: no torch, no model, no socket.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rampway_server.engine.roofline import GPUS, MODELS, gpu_named, shape_named
from rampway_server.errors import UsageError
from rampway_server.logs import LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rampway_server.engine.roofline import Gpu, ModelShape

__all__ = ["Device", "ServerSettings", "build_parser", "parse_serve"]

DEVICES = ("auto", "cpu", "cuda", "simulated", *(f"simulated:{gpu}" for gpu in GPUS))
DTYPES = ("auto", "float32", "bfloat16", "float16")
CACHE_BACKENDS = ("rust", "python", "off")
SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


@dataclass(frozen=True, slots=True)
class Device:
    """Where steps run; `gpu` and `shape` are set for the simulated device that takes time."""

    kind: str
    """auto, cpu, cuda or simulated."""
    gpu: Gpu | None = None
    shape: ModelShape | None = None
    speed: float = 1.0

    @property
    def label(self) -> str:
        """The name in metrics and `/server_info`."""
        if self.kind != "simulated":
            return self.kind
        return f"simulated:{self.gpu.name if self.gpu else 'instant'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Everything `serve` was told; None means: derive it from the model or the device."""

    host: str
    port: int
    metrics_port: int
    model: str | None
    served_model_name: str
    device: Device
    dtype: str
    context_length: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    page_size: int
    num_pages: int | None
    mem_fraction: float | None
    prefix_cache: str
    require_rust_cache: bool
    api_key_files: tuple[Path, ...]
    admin_key_file: Path | None
    max_queued_requests: int
    max_queued_tokens: int | None
    queue_timeout_seconds: float
    request_timeout_seconds: float
    drain_delay_seconds: float
    drain_timeout_seconds: float
    max_connections: int
    deterministic: bool
    threads: int | None
    kernels: str
    log_level: str
    revision: str | None


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
        "--api-key-file",
        type=Path,
        action="append",
        metavar="PATH",
        help="one `tenant:key` or `key` a line; repeatable; without it the API is open",
    )
    group.add_argument(
        "--admin-key-file", type=Path, metavar="PATH", help="keys that may flush the cache"
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


def parse_serve(args: argparse.Namespace, env: Mapping[str, str]) -> ServerSettings:
    """Return the settings of `serve`; raises UsageError with every fault in one line."""
    faults = [*_range_faults(args), *_file_faults(args)]
    device = None
    try:
        device = _device(args)
    except UsageError as error:
        faults.append(str(error))
    backend = args.prefix_cache or env.get("RAMPWAY_PREFIX_CACHE") or "rust"
    if backend not in CACHE_BACKENDS:
        faults.append(
            f"RAMPWAY_PREFIX_CACHE is unknown: got {backend!r}, need {', '.join(CACHE_BACKENDS)}"
        )
    elif args.require_rust_cache and backend != "rust":
        faults.append(f"--require-rust-cache contradicts --prefix-cache {backend}: drop one")
    if device and device.kind != "simulated":
        faults += _model_faults(args)
    name = args.served_model_name or _model_name(args, device)
    if not SERVED_NAME.fullmatch(name):
        faults.append(
            f"--served-model-name is not usable: got {name!r}, need up to 128 letters, digits"
            " and ._:/@+-, beginning with a letter or digit"
        )
    if faults:
        raise UsageError("; ".join(one_line(fault) for fault in faults))
    assert device is not None
    return _settings(args, device, name, backend, env.get("RAMPWAY_REVISION") or None)


def _settings(
    args: argparse.Namespace, device: Device, name: str, backend: str, revision: str | None
) -> ServerSettings:
    return ServerSettings(
        host=args.host,
        port=args.port,
        metrics_port=args.metrics_port,
        model=args.model,
        served_model_name=name,
        device=device,
        dtype=args.dtype,
        context_length=args.context_length,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        page_size=args.page_size,
        num_pages=args.num_pages,
        mem_fraction=args.mem_fraction_static,
        prefix_cache=backend,
        require_rust_cache=args.require_rust_cache,
        api_key_files=tuple(args.api_key_file or ()),
        admin_key_file=args.admin_key_file,
        max_queued_requests=args.max_queued_requests,
        max_queued_tokens=args.max_queued_tokens,
        queue_timeout_seconds=args.queue_timeout,
        request_timeout_seconds=args.request_timeout,
        drain_delay_seconds=args.drain_delay,
        drain_timeout_seconds=args.drain_timeout,
        max_connections=args.max_connections,
        deterministic=args.deterministic,
        threads=args.threads,
        kernels=args.kernels,
        log_level=args.log_level,
        revision=revision,
    )


_RANGES: dict[str, tuple[float, float]] = {
    "port": (0, 65535),
    "metrics_port": (0, 65535),
    "context_length": (2, 10_000_000),
    "threads": (1, 4096),
    "max_num_seqs": (1, 65536),
    "max_num_batched_tokens": (1, 10_000_000),
    "page_size": (1, 65536),
    "num_pages": (2, 2**31 - 1),
    "mem_fraction_static": (0.01, 1.0),
    "simulated_speed": (0.001, 1000.0),
    "max_queued_requests": (1, 1_000_000),
    "max_queued_tokens": (1, 10**12),
    "queue_timeout": (0.001, 86400.0),
    "request_timeout": (0.001, 86400.0),
    "drain_delay": (0.0, 3600.0),
    "drain_timeout": (0.0, 86400.0),
    "max_connections": (1, 1_000_000),
}


def _range_faults(args: argparse.Namespace) -> list[str]:
    faults = []
    for name, (low, high) in _RANGES.items():
        value = getattr(args, name)
        if value is not None and not low <= value <= high:
            flag = "--" + name.replace("_", "-")
            faults.append(f"{flag} is out of range: got {value:g}, need {low:g} ... {high:g}")
    if args.page_size > 0 and args.page_size & (args.page_size - 1):
        faults.append(f"--page-size is no power of two: got {args.page_size}, need 16, for example")
    if args.max_num_seqs > args.max_num_batched_tokens:
        faults.append(
            f"--max-num-seqs is above --max-num-batched-tokens: got {args.max_num_seqs} and"
            f" {args.max_num_batched_tokens}, need a token a sequence in every step"
        )
    if args.port and args.port == args.metrics_port:
        faults.append(f"--port and --metrics-port are both {args.port}: need two ports")
    return faults


def _file_faults(args: argparse.Namespace) -> list[str]:
    files = [("--api-key-file", path) for path in args.api_key_file or ()]
    if args.admin_key_file:
        files.append(("--admin-key-file", args.admin_key_file))
    return [
        f"{flag} is not a readable file: got {str(path)!r}, need one key a line"
        for flag, path in files
        if not (path.is_file() and os.access(path, os.R_OK))
    ]


def _device(args: argparse.Namespace) -> Device:
    kind, _, gpu = args.device.partition(":")
    if kind != "simulated" or args.device.endswith(":"):
        if args.device not in DEVICES:
            near = difflib.get_close_matches(args.device, DEVICES, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"--device is unknown: got {args.device!r}, need auto, cpu, cuda or"
                f" simulated[:GPU]{hint}"
            )
        return Device(kind)
    shape = shape_named(args.simulated_model)
    if gpu == "instant":
        return Device(kind, None, shape, args.simulated_speed)
    return Device(kind, gpu_named(gpu or "h100"), shape, args.simulated_speed)


def _model_faults(args: argparse.Namespace) -> list[str]:
    """Check a real model's files by their headers; the model package says what is wrong."""
    if not args.model:
        return ["--model is missing: need a .gguf file or a Hugging Face folder"]
    path = Path(args.model)
    if not path.exists():
        return [f"--model does not exist: got {args.model!r}, need a .gguf file or a model folder"]
    from rampway_server.model import inspect

    try:
        inspect(path)
    except UsageError as error:
        return [str(error)]
    return []


def _model_name(args: argparse.Namespace, device: Device | None) -> str:
    if args.model:
        path = Path(args.model)
        return path.stem if path.suffix == ".gguf" else (path.name or str(path))
    return f"simulated-{device.shape.name}" if device and device.shape else "model"


def usage_exit(error: Exception) -> int:
    """Print the fault as one line on stderr and return the exit status for it."""
    print(f"rampway-server: error: {one_line(str(error))}", file=sys.stderr)  # noqa: T201
    return 2


def as_dict(settings: ServerSettings) -> dict[str, Any]:
    """Return what `/server_info` may show: no key files, no environment."""
    hidden = {"api_key_files", "admin_key_file", "device"}
    names = (name for name in ServerSettings.__slots__ if name not in hidden)
    return {name: getattr(settings, name) for name in names}
