"""Puts a model together: weights, kernels, KV pool, runner and tokenizer.

It knows the options and what each part needs; importing it imports torch.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import structlog
import torch

from rampway_server.errors import UsageError
from rampway_server.kernels.dispatch import select
from rampway_server.model import kv_pool
from rampway_server.model.contract import LoadedModel
from rampway_server.model.decode_graphs import CudaGraphs, DecodeGraphs, buckets
from rampway_server.model.llama import Llama
from rampway_server.model.machine import available_cpus, available_memory_bytes
from rampway_server.model.runner import TorchRunner
from rampway_server.model.weights import build_weights

if TYPE_CHECKING:
    from rampway_server.model.contract import LoadOptions
    from rampway_server.model.source import ModelSource

__all__ = ["assemble"]

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_log = structlog.get_logger(__name__)


def assemble(source: ModelSource, options: LoadOptions) -> LoadedModel:
    """Return the loaded model; raises UsageError where options and machine do not fit."""
    started = time.monotonic()
    _check_device(options)
    if options.device == "cpu":
        torch.set_num_threads(options.threads or available_cpus())
    longest = _longest_context(source, options)
    kernels = select(options.device, options.kernels, invariant=options.deterministic)
    dtype = _dtype(options)
    tokenizer = source.tokenizer()
    with torch.inference_mode():
        weights = build_weights(
            source,
            dtype=dtype,
            device=options.device,
            context_length=longest,
            invariant=options.deterministic,
            on_layer=_progress,
        )
        pages = kv_pool.pages_that_fit(source.config, options, _free_bytes(options), dtype.itemsize)
        # Page 0 is never given away; an unasked context is cut to what one sequence can get.
        context = min(longest, (pages - 1) * options.page_size)
        pool = kv_pool.allocate(source.config, pages, options.page_size, dtype, options.device)
    model = Llama(source.config, weights, kernels)
    runner = TorchRunner(
        model,
        pool,
        device=options.device,
        context_length=context,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        invariant=options.deterministic,
        graphs=_graphs(model, pool, options, context),
    )
    facts = source.info()
    info: dict[str, object] = {
        "architecture": facts.architecture,
        "format": facts.format,
        "num_parameters": facts.num_parameters,
        "weight_bytes_in_files": facts.weight_bytes,
        "tensor_types": facts.tensor_types,
        "dtype": str(dtype).removeprefix("torch."),
        "device": options.device,
        "threads": torch.get_num_threads(),
        "kernels": kernels.NAME,
        "deterministic": options.deterministic,
        "num_pages": pages,
        "page_size": options.page_size,
        "kv_bytes_per_token": source.config.kv_bytes_per_token(dtype.itemsize),
        "context_length": context,
        "load_seconds": round(time.monotonic() - started, 3),
    }
    _log.info("model loaded", model=facts.model_id, **info)
    return LoadedModel(runner=runner, tokenizer=tokenizer, model_id=facts.model_id, info=info)


def _graphs(
    model: Llama, pool: kv_pool.KvPool, options: LoadOptions, context: int
) -> DecodeGraphs | None:
    """Return graphs for decode steps on cuda; None where a step cannot or must not be captured.

    The torch references read lengths on the host, and `deterministic` has no decode steps.
    """
    if options.device != "cuda" or options.deterministic or model.kernels.NAME != "triton":
        return None
    shapes = buckets(options.max_num_seqs, -(-context // options.page_size))
    return DecodeGraphs(model, pool, shapes, CudaGraphs(), options.device)


def _check_device(options: LoadOptions) -> None:
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda cannot be used: no CUDA device is visible, need one or cpu")
    if options.page_size < 1 or options.page_size > 1024:
        raise UsageError(f"--page-size cannot be used: got {options.page_size}, need 1 to 1024")


def _longest_context(source: ModelSource, options: LoadOptions) -> int:
    own = source.config.context_length
    wanted = own if options.context_length is None else options.context_length
    if not 1 <= wanted <= own:
        raise UsageError(f"--context-length cannot be used: got {wanted}, need 1 to {own}")
    return wanted


def _dtype(options: LoadOptions) -> torch.dtype:
    """Return the dtype; auto is bfloat16 where the device multiplies in it, else float32."""
    if options.dtype != "auto":
        return _DTYPES[options.dtype]
    fast = options.device == "cuda" or torch.ops.mkldnn._is_mkldnn_bf16_supported()  # noqa: SLF001
    return torch.bfloat16 if fast else torch.float32


def _free_bytes(options: LoadOptions) -> int:
    if options.device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return available_memory_bytes()


def _progress(done: int, total: int) -> None:
    """Draw a bar on a terminal; a log file gets one line when the model is loaded."""
    if sys.stderr.isatty():
        filled = 30 * done // total
        end = "\n" if done == total else ""
        sys.stderr.write(f"\rloading layers [{'#' * filled:<30}] {done}/{total}{end}")
        sys.stderr.flush()
