"""The NVIDIA driver and the GPUs that this process can see.

Driver and GPUs belong to the node, so every failure here is a bad node. It does not know whether torch or
Triton can use them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from rampway_check_env.child import End, Outcome
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped, unable
from rampway_check_env.units import format_bytes
from rampway_check_env.versions import Version, parse_version

__all__ = ["Cuda", "check", "look"]

_LIMIT = 30.0
_SONAME = "libcuda.so.1"
_NODE_REMEDY = "drain the node and repair its driver or GPU"
_CODES = {
    3: "not initialised",
    34: "a stub library, not the driver's own",
    46: "the device is in use or unavailable",
    100: "no CUDA device",
    101: "invalid device",
    802: "the system is not ready (fabric manager)",
    803: "driver and libcuda do not belong together",
    804: "forward compatibility is not supported on this GPU",
    999: "unknown error",
}
_KERNEL_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9]+(?:\.[0-9]+)+)")
_LIBRARY_NAME = re.compile(r"libcuda\.so\.([0-9]+(?:\.[0-9]+)+)$")


@dataclass(frozen=True)
class Cuda:
    """What was seen of the driver. `fault_text` is set where the driver is there and does not answer."""

    driver: Optional[Version] = None
    driver_source: str = ""
    cuda: Optional[Version] = None
    """CUDA version that the driver supports."""
    library: str = ""
    gpus: Tuple[Dict[str, Any], ...] = ()
    fault_text: str = ""
    fault: Fault = Fault.BAD_NODE
    code: int = 0
    """Error code of the driver call that failed; 0 where none did."""

    @property
    def usable(self) -> bool:
        """Whether there is a GPU that answers."""
        return not self.fault_text and any("error" not in gpu for gpu in self.gpus)


def look(context: Context) -> Cuda:
    """What /proc, libcuda and, where needed, nvidia-smi say. Starts a child only where there is a libcuda."""
    driver, source = _kernel_module(context)
    library = context.loader.from_python(_SONAME)
    if library is None:
        driver, source = (driver, source) if driver else _nvidia_smi(context)
        return Cuda(driver, source)
    gpu = context.requirements.gpu
    outcome = context.probe(
        "cuda",
        limit=_LIMIT,
        library=context.machine.real(library),
        free_memory=bool(gpu and gpu.free_memory),
    )
    seen = outcome.data
    if driver is None:
        driver, source = _library_name(seen.get("path", "") or library)
    if driver is None:
        driver, source = _nvidia_smi(context)
    text, fault = _fault(outcome)
    cuda = parse_version(seen["cuda"]) if "cuda" in seen else None
    return Cuda(
        driver,
        source,
        cuda,
        str(seen.get("path", "") or library),
        tuple(seen.get("gpus", ())),
        text,
        fault,
        int(seen.get("code", 0)),
    )


def check(context: Context, seen: Cuda) -> List[Finding]:
    """Findings for `cudaDriver` and `gpu`."""
    return [_driver(context, seen), _gpus(context, seen)]


def describe_error(call: str, code: int) -> str:
    """A driver call and its error code in words."""
    return "%s failed with code %d%s" % (
        call,
        code,
        " (%s)" % _CODES[code] if code in _CODES else "",
    )


def _driver(context: Context, seen: Cuda) -> Finding:
    wanted = context.requirements.cuda_driver
    required = str(wanted or "")
    if seen.driver is None:
        if wanted is None:
            return skipped("cudaDriver", "no NVIDIA driver on this node")
        remedy = "run on a GPU node with the driver and its container runtime (runtimeClassName: nvidia), and ask for a GPU in engine.resources"
        return failed(
            "cudaDriver", Fault.BAD_NODE, found="no NVIDIA driver", required=required, remedy=remedy
        )
    supports = " (CUDA %s)" % seen.cuda if seen.cuda else ""
    found = "%s%s by %s" % (seen.driver, supports, seen.driver_source)
    if wanted is None or wanted.allows(seen.driver):
        return passed("cudaDriver", found, required)
    return failed(
        "cudaDriver",
        Fault.BAD_NODE,
        found=found,
        required=required,
        remedy="update the driver of the node, or choose nodes with a newer one",
    )


def _gpus(context: Context, seen: Cuda) -> Finding:
    wanted = context.requirements.gpu
    required = _required_gpus(context)
    if seen.fault_text and (wanted is not None or context.machine.has_gpu_device()):
        if seen.fault is Fault.INFRASTRUCTURE:
            return unable("gpu", found=seen.fault_text, required=required, remedy=_NODE_REMEDY)
        return failed(
            "gpu", Fault.BAD_NODE, found=seen.fault_text, required=required, remedy=_NODE_REMEDY
        )
    if wanted is None:
        return (
            passed("gpu", _names(seen))
            if seen.usable
            else skipped("gpu", seen.fault_text or "no GPU is visible")
        )
    problem = _problem(context, seen)
    if problem:
        remedy = (
            "choose a node with such GPUs (engine.resources, nodeSelector), or free their memory"
        )
        return failed("gpu", Fault.BAD_NODE, found=problem, required=required, remedy=remedy)
    return passed("gpu", _names(seen), required)


def _problem(context: Context, seen: Cuda) -> str:
    """The first thing that is not as required; empty when all is."""
    wanted = context.requirements.gpu
    assert wanted is not None
    count = 1 if wanted.count is None else wanted.count
    if len(seen.gpus) < count:
        return "%d of %d GPUs visible" % (len(seen.gpus), count)
    for gpu in seen.gpus:
        label = "GPU %d" % gpu["index"]
        if "error" in gpu:
            return "%s: %s" % (label, describe_error(gpu["error"], gpu["code"]))
        if wanted.compute_capability and gpu["capability"] not in wanted.compute_capability:
            return "%s (%s) has compute capability %s" % (label, gpu["name"], gpu["capability"])
        if wanted.free_memory is not None and gpu.get("free", 0) < wanted.free_memory:
            return "%s (%s) has %s of %s free" % (
                label,
                gpu["name"],
                format_bytes(gpu.get("free", 0)),
                format_bytes(gpu["total"]),
            )
    return ""


def _required_gpus(context: Context) -> str:
    wanted = context.requirements.gpu
    if wanted is None:
        return ""
    parts = ["%d or more" % (1 if wanted.count is None else wanted.count)]
    if wanted.compute_capability:
        parts.append("compute capability " + " or ".join(wanted.compute_capability))
    if wanted.free_memory is not None:
        parts.append("%s free on each" % format_bytes(wanted.free_memory))
    return ", ".join(parts)


def _names(seen: Cuda) -> str:
    shown = [
        "%s (%s, %s)" % (g["name"], g["capability"], format_bytes(g["total"]))
        for g in seen.gpus[:8]
        if "error" not in g
    ]
    return "%d visible: %s" % (len(seen.gpus), ", ".join(shown)) if seen.gpus else "none visible"


def _fault(outcome: Outcome) -> Tuple[str, Fault]:
    """What the probe failed of; empty where it did not. A hang is nobody's fault that can be named."""
    if not outcome.ok:
        how = "asking %s for its GPUs %s" % (_SONAME, outcome.describe())
        return how, Fault.INFRASTRUCTURE if outcome.end is End.TIMEOUT else Fault.BAD_NODE
    if "error" in outcome.data:
        return describe_error(outcome.data["error"], outcome.data["code"]), Fault.BAD_NODE
    return "", Fault.BAD_NODE


def _kernel_module(context: Context) -> Tuple[Optional[Version], str]:
    text = context.machine.read_text("/proc/driver/nvidia/version") or ""
    match = _KERNEL_MODULE.search(text)
    return (parse_version(match.group(1)), "the kernel module") if match else (None, "")


def _library_name(path: str) -> Tuple[Optional[Version], str]:
    match = _LIBRARY_NAME.search(path)
    return (parse_version(match.group(1)), "the name of libcuda") if match else (None, "")


def _nvidia_smi(context: Context) -> Tuple[Optional[Version], str]:
    if context.requirements.cuda_driver is None:
        return None, ""
    outcome = context.command(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], limit=_LIMIT
    )
    version = parse_version(outcome.stdout) if outcome.ok else None
    return (
        (Version(version.release, version.final, version.text.splitlines()[0]), "nvidia-smi")
        if version
        else (None, "")
    )
