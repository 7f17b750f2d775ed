"""`rampway-server bench kernels`: what share of a device copy, or of torch's SDPA, each kernel gets.

It knows the table and the command line; `kernel_cases.py` knows shapes, `graph_clock.py` the time.
Without a CUDA device there is nothing to measure: one line says so.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from rampway_server.bench.kernel_cases import Case

__all__ = ["Figure", "add_flags", "measure", "render", "run"]

KERNELS = (
    *("rms_norm", "rope_kv_write", "silu_mul", "paged_decode_attention"),
    *("prefix_extend_attention", "sample"),
)
DTYPES = ("bf16", "fp16", "fp32")
TITLES = ("kernel", "case", "dtype", "µs", "GB/s", "TFLOP/s", "share", "target", "max error")


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured case."""

    kernel: str
    case: str
    dtype: str
    seconds: float
    """Of one call."""
    bytes_moved: int
    """The least that any implementation moves."""
    operations: int
    """Multiplications and additions; 0 where the kernel is bound by memory."""
    share: float
    """Of the device copy's bytes a second, or of torch's SDPA where `operations` is not 0."""
    target: float
    max_error: float
    """Largest difference from the torch reference, relative above 1; tokens that differ, for sampling."""
    allowed_error: float

    @property
    def met(self) -> bool:
        """Return whether share and error are as they must be."""
        return self.share >= self.target and self.max_error <= self.allowed_error


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `bench kernels`."""
    parser.add_argument(
        "--kernel", choices=KERNELS, action="append", help="repeatable; all if none"
    )
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="repeatable; bf16 if none")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    parser.add_argument(
        "--fail-on-miss", action="store_true", help="exit with 1 when a target is missed"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and return the exit status."""
    _need_gpu()
    import torch

    from rampway_server.bench.graph_clock import seconds_of
    from rampway_server.bench.kernel_cases import cases, copy_case
    from rampway_server.kernels.dispatch import select

    figures = []
    with torch.inference_mode():
        copied, copy = copy_case("cuda")
        copy_rate = copied / seconds_of(copy)
        for dtype in args.dtype or ("bf16",):
            wanted = cases(select("cuda"), dtype, "cuda", args.kernel or KERNELS)
            figures += measure(wanted, dtype, copy_rate, seconds_of)
    name = torch.cuda.get_device_name()
    print(f"{name}, device copy {copy_rate / 1e9:,.0f} GB/s = 100 %\n{render(figures)}")  # noqa: T201 - its answer
    if args.json:
        text = json.dumps({"device": name, "figures": [asdict(one) for one in figures]}, indent=2)
        args.json.write_text(text + "\n", encoding="utf-8")
    return 1 if args.fail_on_miss and not all(one.met for one in figures) else 0


def measure(
    wanted: Iterable[Case],
    dtype: str,
    copy_rate: float,
    clock: Callable[[Callable[[], object]], float],
) -> list[Figure]:
    """Return a figure a case; `clock` returns the seconds of one call, `copy_rate` is bytes a second."""
    figures = []
    for case in wanted:
        error = case.error()
        seconds = clock(case.call)
        rate = case.bytes_moved / seconds
        share = clock(case.peer) / seconds if case.peer is not None else rate / copy_rate
        figures.append(
            Figure(
                kernel=case.kernel,
                case=case.name,
                dtype=dtype,
                seconds=seconds,
                bytes_moved=case.bytes_moved,
                operations=case.operations,
                share=share,
                target=case.target,
                max_error=error,
                allowed_error=case.allowed_error,
            )
        )
    return figures


def render(figures: Iterable[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = [f"| {' | '.join(TITLES)} |", "|" + "---|" * len(TITLES)]
    for one in figures:
        rate = f"{one.operations / one.seconds / 1e12:.1f}" if one.operations else ""
        cells = (
            one.kernel,
            one.case,
            one.dtype,
            f"{one.seconds * 1e6:.1f}",
            f"{one.bytes_moved / one.seconds / 1e9:,.0f}",
            rate,
            f"{one.share:.0%}",
            f"{one.target:.0%}{'' if one.met else ' MISSED'}",
            f"{one.max_error:.2g}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _need_gpu() -> None:
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "bench kernels needs torch, which is not installed: install rampway-server[torch]"
        )
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "bench kernels needs a CUDA device: got none, check nvidia-smi and the pod's GPU"
            " resource; kernels are checked without one by rampway_server.kernels.usage_record"
        )
