"""Whether torch has the version required, can be imported, and multiplies correctly on the GPU.

It does not know what the engine does with torch. Without a requirement it imports torch only where there is
a GPU, because the import takes seconds.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from rampway_check_env.checks.cuda import Cuda
from rampway_check_env.checks.verdicts import broken, version_finding
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, skipped

__all__ = ["check"]

_LIMIT = 150.0
_TOLERANCE = 1e-3


def check(context: Context, seen: Cuda) -> List[Finding]:
    """One finding for `torch`."""
    wanted = context.requirements.torch
    if context.installed("torch"):
        if wanted is None and not seen.usable:
            return [skipped("torch", "not required and no GPU to try it on")]
        return [_import(context, seen)]
    if wanted is None:
        return [skipped("torch", "not installed")]
    remedy = "install torch in the image"
    return [_bad(Fault.BAD_REVISION, "not installed", str(wanted), remedy)]


def _import(context: Context, seen: Cuda) -> Finding:
    wanted = context.requirements.torch
    outcome = context.probe("pytorch", limit=_LIMIT, device=seen.usable)
    data = outcome.data
    if not data:
        remedy = "repair torch in the image: pip check, and one CUDA version for all packages"
        return broken("torch", "importing torch", outcome, str(wanted or "an import"), remedy)
    if data["cuda"] and seen.usable:
        problem = _on_gpu(data)
        if problem is not None:
            return problem
    correct = ", product on the GPU correct" if "difference" in data else ""
    note = " (CUDA %s%s)" % (data["cuda"], correct) if data["cuda"] else " (CPU)"
    return version_finding("torch", data["version"], wanted, note)


def _on_gpu(data: Dict[str, Any]) -> Optional[Finding]:
    """What is wrong with torch on this node's GPU; None when nothing is."""
    if not data["available"]:
        found = "%s sees no GPU though the driver shows one" % data["version"]
        remedy = "install a torch built for the driver's CUDA version, or update the driver"
        return _bad(Fault.BAD_NODE, found, "a usable GPU", remedy)
    if "device_error" in data:
        found = "a product on the GPU failed: %s" % data["device_error"]
        remedy = "drain the node and repair its GPU, or free its memory"
        return _bad(Fault.BAD_NODE, found, "a usable GPU", remedy)
    if data["difference"] > _TOLERANCE:
        found = "a product on the GPU is off by %g" % data["difference"]
        remedy = "drain the node: its GPU computes wrong numbers"
        return _bad(Fault.BAD_NODE, found, "within %g" % _TOLERANCE, remedy)
    return None


def _bad(fault: Fault, found: str, required: str, remedy: str) -> Finding:
    return failed("torch", fault, found=found, required=required, remedy=remedy)
