"""Runs the checks in order and gathers their findings into a report.

The order is the order of causes: what a later check needs is checked before it, and a check whose ground is
missing is skipped, so that a bad node is never taken for a bad image. It does not know how a check works.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List

from rampway_check_env.checks import (
    cuda,
    custom,
    glibc,
    gpu_health,
    image_cuda,
    libstdcxx,
    limits,
    prefix_cache,
    pytorch,
    symbols,
    triton_kernel,
)
from rampway_check_env.context import Context
from rampway_check_env.findings import OTHER_IMAGE, Finding, Report, skipped, unable
from rampway_check_env.machine import Machine
from rampway_check_env.requirements import Requirements

__all__ = ["run_checks"]

Check = Callable[[Context], List[Finding]]


def run_checks(
    requirements: Requirements, machine: Machine, *, timeout: float, other_image: bool = False
) -> Report:
    """The report on `machine`; no check outlives `timeout` seconds from now.

    In another image than the engine's only the node is checked, and the report names what was not.
    """
    started = time.monotonic()
    context = Context(requirements, machine, started + timeout, other_image)
    findings: List[Finding] = []
    for name, check in _CHECKS.items():
        findings += _guarded(name, check, context)
    return Report(tuple(findings), round((time.monotonic() - started) * 1000))


def _guarded(name: str, check: Check, context: Context) -> List[Finding]:
    """The findings of a check; one that fails itself, on a machine nobody foresaw, is one finding more."""
    if context.other_image and name in _OF_THE_IMAGE:
        return [skipped(name, OTHER_IMAGE)]
    try:
        return check(context)
    except Exception as error:
        found = "the check itself failed: %s: %s" % (type(error).__name__, str(error)[:300])
        return [unable(name, found=found, required="", remedy="report this with the output")]


def _devices(context: Context) -> List[Finding]:
    """Driver, GPUs, then what uses them; nothing is compiled on a GPU that torch could not use."""
    seen = cuda.look(context)
    findings = cuda.check(context, seen) + gpu_health.check(context)
    if context.other_image:
        return findings + [skipped(name, OTHER_IMAGE) for name in _WITH_DEVICES]
    findings += image_cuda.check(context, seen)
    if seen.usable and any(finding.fault for finding in findings):
        return [
            *findings,
            skipped("torch", "driver or GPU are not as required"),
            skipped("triton", "driver or GPU are not as required"),
        ]
    torch = pytorch.check(context, seen)
    findings += torch
    if any(finding.fault for finding in torch) and seen.usable:
        return [*findings, skipped("triton", "torch cannot use the GPU")]
    return findings + triton_kernel.check(context, seen)


_OF_THE_IMAGE = frozenset({"glibc", "glibcxx", "symbols", "prefixCache"})
"""Checks whose answer is about the image alone."""
_WITH_DEVICES = ("cudaRuntime", "torch", "triton")
"""Findings about the image that `_devices` has."""
_CHECKS: Dict[str, Check] = {
    "glibc": glibc.check,
    "glibcxx": libstdcxx.check,
    "symbols": symbols.check,
    "limits": limits.check,
    "gpu": _devices,
    "prefixCache": prefix_cache.check,
    "custom": custom.check,
}
"""In the order in which they run, by the name under which a failure of the check itself is reported."""
