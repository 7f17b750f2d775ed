"""Command line and environment in, frozen settings out; all faults at once, each with its remedy.

It reads flags, file headers and ports' numbers only: no torch, no model, no socket.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.engine.roofline import gpu_named, shape_named
from rampway_server.errors import UsageError
from rampway_server.flags import CACHE_BACKENDS, DEVICES, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rampway_server.engine.roofline import Gpu, ModelShape

__all__ = ["Device", "ServerSettings", "as_dict", "parse_serve", "usage_exit"]

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
    metrics_dialect: str | None
    model: str | None
    served_model_name: str
    device: Device
    dtype: str
    context_length: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    overlap: bool
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
    tool_call_parser: str
    reasoning_parser: str
    log_level: str
    revision: str | None


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
        metrics_dialect=args.metrics_dialect,
        model=args.model,
        served_model_name=name,
        device=device,
        dtype=args.dtype,
        context_length=args.context_length,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        overlap=not args.disable_overlap_schedule,
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
        tool_call_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
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
