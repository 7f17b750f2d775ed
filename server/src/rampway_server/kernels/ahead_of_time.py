"""Compiles kernels for GPUs that are not here, in parallel, into Triton's own cache.

It knows launches and processes; `usage_record.py` compares and shows what comes out.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rampway_server.kernels.dispatch import pin_environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rampway_server.kernels.shapes import Shape
    from rampway_server.kernels.usage import Usage

__all__ = ["Compiled", "Job", "compile_all", "compile_job", "jobs"]


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel in one dtype for one architecture, for all shapes: no two jobs compile the same."""

    kernel: str
    dtype: str
    arch: int
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compilation: which kernel with which compile-time sizes, and what came out."""

    kernel: str
    """As Triton names it; a kernel of ours may be several."""
    config: str
    """Compile-time sizes, such as "BLOCK=1024 HAS_RESIDUAL=0"."""
    dtype: str
    arch: int
    cache_hit: bool
    usage: Usage | None
    """None where only the cache was to be filled."""


def jobs(shapes: Iterable[Shape], dtypes: Sequence[str], archs: Iterable[int]) -> tuple[Job, ...]:
    """Return the jobs, the slowest kernels first; sampling is fp32 only, whatever `dtypes` are."""
    kernels = ("prefix_extend_attention", "paged_decode_attention", "rope_kv_write", "rms_norm")
    wanted = tuple(shapes)
    each = [(kernel, dtype) for kernel in (*kernels, "silu_mul") for dtype in dtypes]
    return tuple(
        Job(kernel, dtype, arch, wanted)
        for kernel, dtype in (("sample", "fp32"), *each)
        for arch in archs
    )


def compile_all(
    wanted: Sequence[Job], cache: Path, *, measure: bool = True, workers: int | None = None
) -> list[Compiled]:
    """Return what `wanted` compile to, in processes that put it into the folder `cache`."""
    count = workers or len(os.sched_getaffinity(0))
    # Not forked: torch and the compiler have threads of their own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        count, mp_context=context, initializer=_use, initargs=(str(cache),)
    ) as pool:
        found = [pool.submit(compile_job, job, measure=measure) for job in wanted]
        return [one for future in found for one in future.result()]


def _use(cache: str) -> None:
    os.environ["TRITON_CACHE_DIR"] = cache


def compile_job(job: Job, *, measure: bool = True) -> list[Compiled]:
    """Return every compilation of one job in this process, each once."""
    pin_environment()
    import torch
    from triton import knobs

    from rampway_server.kernels.launches import DTYPES, LAUNCHES
    from rampway_server.kernels.stub_driver import pretend
    from rampway_server.kernels.usage import usage_of

    found: dict[tuple[str, str], Compiled] = {}

    def listen(
        *,
        src: Any,
        metadata: dict[str, Any],
        metadata_group: dict[str, str],
        cache_hit: bool,
        **_: Any,
    ) -> None:
        name = str(src.name).strip("_").removesuffix("_kernel")
        cubin = next(Path(path) for path in metadata_group.values() if path.endswith(".cubin"))
        usage = usage_of(cubin, metadata["shared"]) if measure else None
        row = Compiled(name, _config(src), job.dtype, job.arch, cache_hit, usage)
        before = found.setdefault((name, row.config), row)
        if before.usage != usage:
            raise ValueError(f"one config has two results: got {row}, need the same as {before}")

    knobs.compilation.listener = listen
    try:
        with pretend(job.arch), torch.inference_mode():
            for shape in job.shapes:
                LAUNCHES[job.kernel](shape, DTYPES[job.dtype])
    finally:
        knobs.compilation.listener = None
    return list(found.values())


def _config(source: Any) -> str:
    """Return the compile-time sizes of a compilation, without what the JIT found by itself."""
    sizes = {
        param.name: source.constants[param.num,] for param in source.fn.params if param.is_constexpr
    }
    return " ".join(f"{name}={int(value)}" for name, value in sizes.items())
