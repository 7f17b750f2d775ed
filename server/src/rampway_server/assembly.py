"""Settings in, a running engine behind a bridge out: device, cache, scheduler, wired once.

It knows no route; torch comes in only through the model package, only for a real device.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import structlog

from rampway_server.api.bridge import AdmissionLimits, Bridge
from rampway_server.api.dialect import dialect_of
from rampway_server.api.service import Loaded
from rampway_server.cache.protocol import CacheError
from rampway_server.cache.select import open_cache
from rampway_server.engine.batch import RunnerLimits
from rampway_server.engine.byte_tokenizer import END_OF_SEQUENCE, ByteTokenizer
from rampway_server.engine.engine import Engine
from rampway_server.engine.roofline import Roofline, gpu_named
from rampway_server.engine.scheduler import Scheduler, SchedulerLimits
from rampway_server.engine.simulated import SimulatedRunner
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from rampway_server.cache.select import Selected
    from rampway_server.engine.batch import Runner
    from rampway_server.engine.tokenizer import Tokenizer
    from rampway_server.settings import ServerSettings
    from rampway_server.telemetry import Telemetry

__all__ = ["Prepared", "connect", "prepare"]

SIMULATED_MEM_FRACTION = 0.9
QUEUE_SECONDS = 60.0
"""Prompt tokens that may wait by default: what the device prefills in this time."""
UNBOUNDED_TOKENS = 10**12

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A warm device and its tokenizer, not yet serving."""

    runner: Runner
    tokenizer: Tokenizer
    cache: Selected
    context_length: int
    info: dict[str, object]


def prepare(settings: ServerSettings) -> Prepared:
    """Load and warm up; takes as long as the model does. Raises UsageError with one line."""
    if settings.device.kind == "simulated":
        runner, tokenizer, info = _simulated(settings)
    else:
        runner, tokenizer, info = _real(settings)
    limits = runner.limits
    try:
        cache = open_cache(
            settings.prefix_cache,
            limits.num_pages,
            limits.page_size,
            require_rust=settings.require_rust_cache,
        )
    except CacheError as error:
        raise UsageError(str(error)) from error
    if cache.fallback:
        log.warning("prefix_cache_fallback", running=cache.running, reason=cache.fallback)
    context = _context_length(settings, limits)
    runner.warm_up()
    return Prepared(runner, tokenizer, cache, context, info)


def connect(
    settings: ServerSettings,
    prepared: Prepared,
    loop: asyncio.AbstractEventLoop,
    telemetry: Telemetry,
) -> Loaded:
    """Return the engine with its bridge, not started yet."""
    runner, cache = prepared.runner, prepared.cache
    longest = runner.longest_step_seconds(settings.max_num_batched_tokens)
    rate = settings.max_num_batched_tokens / longest if longest else float(UNBOUNDED_TOKENS)
    queued_tokens = settings.max_queued_tokens or int(
        min(UNBOUNDED_TOKENS, max(rate * QUEUE_SECONDS, 4 * prepared.context_length))
    )
    limits = AdmissionLimits(settings.max_queued_requests, queued_tokens, rate)
    bridge = Bridge(loop, limits, telemetry, cache.cache.stats())
    scheduler = Scheduler(
        cache.cache,
        SchedulerLimits(
            settings.max_num_seqs,
            settings.max_num_batched_tokens,
            share_prefixes=cache.running != "off",
        ),
    )
    overlap = settings.overlap and _overlaps(settings.device.kind, prepared.info)
    engine = Engine(runner, scheduler, bridge.sink, overlap=overlap)
    bridge.attach(engine)
    return Loaded(
        engine=engine,
        bridge=bridge,
        tokenizer=prepared.tokenizer,
        limits=runner.limits,
        context_length=prepared.context_length,
        cache_backend=cache.running,
        cache_fallback=cache.fallback,
        device=_device_label(settings, prepared.info),
        info=prepared.info,
        longest_step_seconds=longest,
        dialect=dialect_of(
            prepared.tokenizer.chat_template,
            tool_call_parser=settings.tool_call_parser,
            reasoning_parser=settings.reasoning_parser,
        ),
    )


def _overlaps(kind: str, info: dict[str, object]) -> bool:
    """Whether the host is free while the device computes: on a CPU they are the same cores."""
    return kind == "simulated" or str(info.get("device", kind)).startswith("cuda")


def _device_label(settings: ServerSettings, info: dict[str, object]) -> str:
    if settings.device.kind == "simulated":
        return settings.device.label
    return str(info.get("device", settings.device.label))


def _context_length(settings: ServerSettings, limits: RunnerLimits) -> int:
    """Return the context that one request alone can fill: then a full pool never blocks for ever."""
    pool = (limits.num_pages - 1) * limits.page_size
    wanted = settings.context_length
    if wanted is not None and wanted > pool:
        raise UsageError(
            f"--context-length does not fit the KV pool: got {wanted} tokens, need at most {pool};"
            " lower it, or give the pool more pages"
        )
    if limits.context_length > pool:
        log.warning("context_cut_to_pool", model=limits.context_length, pool=pool)
    return min(limits.context_length, pool)


def _simulated(settings: ServerSettings) -> tuple[Runner, Tokenizer, dict[str, object]]:
    device = settings.device
    shape = device.shape
    assert shape is not None
    if settings.context_length is not None and settings.context_length > shape.context_length:
        raise UsageError(
            f"--context-length is above the model's: got {settings.context_length}, need at most"
            f" {shape.context_length} for {shape.name}"
        )
    # The instant device has no clock, but its memory is that of the default GPU.
    roofline = Roofline(shape, device.gpu or gpu_named("h100"), device.speed)
    fraction = settings.mem_fraction or SIMULATED_MEM_FRACTION
    tokenizer = ByteTokenizer(shape.vocab_size)
    limits = RunnerLimits(
        num_pages=settings.num_pages or max(2, roofline.pages(settings.page_size, fraction)),
        page_size=settings.page_size,
        context_length=settings.context_length or shape.context_length,
        vocab_size=tokenizer.vocab_size,
    )
    runner = SimulatedRunner(limits, END_OF_SEQUENCE, roofline if device.gpu else None)
    info: dict[str, object] = {
        "architecture": "simulated",
        "simulated_model": shape.name,
        "simulated_gpus": roofline.gpus,
        "simulated_speed": device.speed,
        "num_parameters": shape.parameters,
    }
    return runner, tokenizer, info


def _real(settings: ServerSettings) -> tuple[Runner, Tokenizer, dict[str, object]]:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            f"--device {settings.device.kind} needs torch, which is not installed: install"
            " rampway-server[torch], or use --device simulated"
        )
    from rampway_server.model import LoadOptions, load

    assert settings.model is not None
    defaults = LoadOptions()
    options = LoadOptions(
        device=_real_device(settings.device.kind),
        dtype=cast("Literal['auto', 'float32', 'bfloat16', 'float16']", settings.dtype),
        page_size=settings.page_size,
        num_pages=settings.num_pages,
        mem_fraction=settings.mem_fraction or defaults.mem_fraction,
        context_length=settings.context_length,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        deterministic=settings.deterministic,
        threads=settings.threads,
        kernels=cast("Literal['auto', 'reference', 'triton']", settings.kernels),
    )
    loaded = load(Path(settings.model), options)
    return loaded.runner, loaded.tokenizer, loaded.info


def _real_device(kind: str) -> Literal["cpu", "cuda"]:
    if kind == "cpu":
        return "cpu"
    # torch only here, through its own front door: nothing of ours needs it before.
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        return "cuda"
    if kind == "cuda":
        raise UsageError(
            "--device cuda has no CUDA device here: check the driver with nvidia-smi and the pod's"
            " GPU resource, or use --device cpu"
        )
    return "cpu"
