"""Shared memory, process limits and disk space that the node gives this container.

It checks only what is required: no size is wrong by itself.
"""

from __future__ import annotations

import os
import resource
from typing import Callable, List

from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, unable
from rampway_check_env.requirements import UNLIMITED, DiskSpace
from rampway_check_env.units import format_bytes

__all__ = ["check"]

_SHM = "/dev/shm"  # noqa: S108 - the real path


def check(context: Context) -> List[Finding]:
    """Findings for `shm`, `memlock`, `openFiles` and `disk`, where required."""
    wanted = context.requirements
    findings = []
    if wanted.shm is not None:
        findings.append(_shared_memory(context, wanted.shm))
    if wanted.memlock is not None:
        limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
        findings.append(_limit("memlock", limit, wanted.memlock, format_bytes))
    if wanted.open_files is not None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        findings.append(_limit("openFiles", limit, wanted.open_files, str))
    findings.extend(_disk(context, disk) for disk in wanted.disk)
    return findings


def _shared_memory(context: Context, wanted: int) -> Finding:
    remedy = "set engine.sharedMemory of the InferenceDeployment"
    return _space(context, "shm", _SHM, wanted, free=False, remedy=remedy)


def _disk(context: Context, disk: DiskSpace) -> Finding:
    remedy = "free space on the node, or mount a larger volume there"
    return _space(context, "disk", disk.path, disk.free, free=True, remedy=remedy)


def _space(
    context: Context, check: str, path: str, wanted: int, *, free: bool, remedy: str
) -> Finding:
    required = "%s%s" % (format_bytes(wanted), " free" if free else "")
    try:
        status = os.statvfs(context.machine.real(path))
    except OSError as error:
        return unable(
            check,
            found="%s: %s" % (path, error.strerror or error),
            required=required,
            remedy="mount a volume there",
        )
    size = status.f_frsize * (status.f_bavail if free else status.f_blocks)
    found = "%s %s%s" % (path, format_bytes(size), " free" if free else "")
    if size >= wanted:
        return passed(check, found, required)
    return failed(check, Fault.BAD_NODE, found=found, required=required, remedy=remedy)


def _limit(check: str, limit: int, wanted: int, show: Callable[[int], str]) -> Finding:
    unlimited = limit == resource.RLIM_INFINITY
    found = "unlimited" if unlimited else show(limit)
    required = "unlimited" if wanted == UNLIMITED else show(wanted)
    if unlimited or (wanted != UNLIMITED and limit >= wanted):
        return passed(check, found, required)
    return failed(
        check,
        Fault.BAD_NODE,
        found=found,
        required=required,
        remedy="raise the limit of containers in the node's container runtime",
    )
