"""Multi-instance mode, memory errors and Xid messages of the GPUs: what driver calls do not show until it is late.

All of it belongs to the node. What cannot be read is an error only where it is required. It does not know
whether the GPUs are otherwise as required (`cuda.py`).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from rampway_check_env.child import End, Outcome
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped, unable
from rampway_check_env.requirements import Gpu

__all__ = ["check"]

_LIMIT = 30.0
_SONAME = "libnvidia-ml.so.1"
_LOG = "/dev/kmsg"
_CODES = {
    3: "not supported",
    4: "no permission",
    9: "the driver is not loaded",
    15: "the GPU is lost",
    18: "library and kernel module have different versions",
    999: "unknown error",
}
"""nvmlReturn_t, nvml.h R550."""
_HARDWARE_XIDS = {
    46: "GPU stopped processing",
    48: "double-bit memory error",
    62: "internal microcontroller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained memory error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered memory error",
    154: "GPU needs a recovery action",
}
"""Xids that no application can cause and that end in a reset or repair: NVIDIA's Xid catalog
(docs.nvidia.com/deploy/xid-errors) and the actions of its health checks."""
_ECC_REMEDY = "drain the node and reset its GPU; replace the GPU where errors come back"


def check(context: Context) -> List[Finding]:
    """Findings for `mig`, `ecc` and `xid`."""
    return [*_managed(context), _xid(context)]


def _managed(context: Context) -> List[Finding]:
    """What the management library knows: `mig` and `ecc`."""
    wanted = context.requirements.gpu or Gpu()
    needs = {"mig": wanted.mig or "", "ecc": _ecc_required(wanted)}
    library = context.loader.from_python(_SONAME)
    if library is None:
        return [_unknown(name, need, "no %s" % _SONAME) for name, need in needs.items()]
    outcome = context.probe("nvml", limit=_LIMIT, library=context.machine.real(library))
    problem = _problem(outcome)
    if problem:
        return [_unknown(name, need, problem) for name, need in needs.items()]
    gpus = outcome.data["gpus"]
    if not gpus:
        return [_unknown(name, need, "NVML shows no GPU") for name, need in needs.items()]
    return [_mig(gpus, wanted.mig), _ecc(gpus, wanted.ecc_errors)]


def _unknown(name: str, required: str, why: str) -> Finding:
    if not required:
        return skipped(name, why)
    remedy = (
        "let the container runtime add NVML (NVIDIA_DRIVER_CAPABILITIES with utility), "
        "or leave this requirement out"
    )
    return unable(name, found=why, required=required, remedy=remedy)


def _problem(outcome: Outcome) -> str:
    """Why NVML says nothing; empty when it does. No judgement rests on it: `gpu` asks the driver itself."""
    if not outcome.ok:
        return "asking %s %s" % (_SONAME, outcome.describe())
    for entry in (outcome.data, *outcome.data.get("gpus", ())):
        if "error" in entry:
            words = " (%s)" % _CODES[entry["code"]] if entry["code"] in _CODES else ""
            return "%s failed with code %d%s" % (entry["error"], entry["code"], words)
    return ""


def _mig(gpus: Sequence[Dict[str, Any]], wanted: Optional[str]) -> Finding:
    modes = {True: "Enabled", False: "Disabled", None: "not supported"}
    shown = ["GPU %d: %s" % (gpu["index"], modes[gpu.get("mig")]) for gpu in gpus]
    required = wanted or ""
    for gpu, text in zip(gpus, shown):  # noqa: B905 - Python 3.8 has no strict=
        if wanted and bool(gpu.get("mig")) != (wanted == "Enabled"):
            remedy = "choose nodes whose GPUs have multi-instance mode %s" % wanted
            return failed("mig", Fault.BAD_NODE, found=text, required=required, remedy=remedy)
    return passed("mig", ", ".join(shown), required)


def _ecc(gpus: Sequence[Dict[str, Any]], most: Optional[int]) -> Finding:
    required = "at most %d uncorrected" % most if most is not None else ""
    for gpu in gpus:
        problem = _ecc_problem(gpu, most)
        if problem:
            return failed(
                "ecc",
                Fault.BAD_NODE,
                found="GPU %d: %s" % (gpu["index"], problem),
                required=required or "every bad row remapped",
                remedy=_ECC_REMEDY,
            )
    counted = [gpu["uncorrected"] for gpu in gpus if "uncorrected" in gpu]
    if not counted:
        return skipped("ecc", "these GPUs count no memory errors")
    return passed("ecc", "%d uncorrected errors on %d GPUs" % (sum(counted), len(gpus)), required)


def _ecc_problem(gpu: Dict[str, Any], most: Optional[int]) -> str:
    if gpu.get("remap_failed"):
        return "a memory row could not be remapped"
    if gpu.get("remap_pending"):
        return "a memory row waits for a reset to be remapped"
    if most is None:
        return ""
    if "uncorrected" not in gpu or gpu.get("ecc") is False:
        return "memory errors are not counted (ECC is off or missing)"
    return "%d uncorrected errors" % gpu["uncorrected"] if gpu["uncorrected"] > most else ""


def _ecc_required(wanted: Gpu) -> str:
    return "" if wanted.ecc_errors is None else "at most %d uncorrected" % wanted.ecc_errors


def _xid(context: Context) -> Finding:
    """Only where it is required: the kernel log belongs to the whole node, and a container seldom sees it."""
    most = context.requirements.gpu.xid_errors if context.requirements.gpu else None
    if most is None:
        return skipped("xid", "not required")
    required = "at most %d of failing hardware" % most
    outcome = context.probe("kernel_log", limit=_LIMIT, path=context.machine.real(_LOG))
    if not outcome.data:
        hang = outcome.end is End.TIMEOUT
        why = outcome.describe() if hang else outcome.last_line or outcome.describe()
        remedy = "mount %s read-only and let the container read it, or leave out xidErrors" % _LOG
        return unable(
            "xid", found="%s cannot be read: %s" % (_LOG, why), required=required, remedy=remedy
        )
    bad = [item for item in outcome.data["messages"] if item["number"] in _HARDWARE_XIDS]
    if len(bad) <= most:
        return passed("xid", "%d of failing hardware in the kernel log" % len(bad), required)
    last = bad[-1]
    words = "%d in the kernel log, the last %d (%s) of GPU %s" % (
        len(bad),
        last["number"],
        _HARDWARE_XIDS[last["number"]],
        last["gpu"],
    )
    remedy = "drain the node, reset or replace the GPU, and reboot to clear the log"
    return failed("xid", Fault.BAD_NODE, found=words, required=required, remedy=remedy)
