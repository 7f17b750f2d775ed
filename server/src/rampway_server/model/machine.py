"""What this process may use of the machine: cores and memory, container limits included.

It knows Linux's /proc and cgroups, and no tensors.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["available_cpus", "available_memory_bytes"]

_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def available_cpus(cgroup: Path = _CGROUP) -> int:
    """Return the cores this process may run on, at least 1; a CPU limit of 1.5 counts as 2."""
    cores = len(os.sched_getaffinity(0))
    quota = _words(cgroup / "cpu.max")
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]) > 0:
        cores = min(cores, math.ceil(int(quota[0]) / int(quota[1])))
    return max(1, cores)


def available_memory_bytes(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> int:
    """Return the bytes that can be taken now without swapping or reaching the memory limit."""
    found = 0
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) * 1024
    limit, used = _words(cgroup / "memory.max"), _words(cgroup / "memory.current")
    if limit and limit[0].isdigit() and used and used[0].isdigit():
        found = min(found, int(limit[0]) - int(used[0]))
    return max(0, found)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:  # no such controller here
        return []
