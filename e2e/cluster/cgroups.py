"""Makes and removes the control group that holds all pods of a cluster, on cgroup v1 and v2.

It knows nothing of limits: the kubelet sets those below it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from cluster.errors import ClusterError
from cluster.layout import Layout

ROOT = Path("/sys/fs/cgroup")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


def ensure(layout: Layout) -> None:
    """Makes the group in every hierarchy; the kubelet refuses to start without it."""
    if (ROOT / "cgroup.controllers").exists():
        _delegate()
    for hierarchy in hierarchies():
        group = hierarchy / layout.cgroup
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            raise ClusterError(
                f"control group cannot be made: got {error.strerror} for {group}",
                "the local cluster needs a writable /sys/fs/cgroup (a privileged container)",
            ) from error
        for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new v1 cpuset: nothing may run
            if (hierarchy / file).exists() and (group / file).exists():
                with suppress(OSError):
                    (group / file).write_text((hierarchy / file).read_text())


def hierarchies() -> list[Path]:
    """One root per hierarchy: /sys/fs/cgroup itself on v2, its folders on v1."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    mounted = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
    return [folder for folder in sorted(ROOT.iterdir()) if str(folder) in mounted]


def pids(layout: Layout) -> list[int]:
    """Every process in a pod of this cluster."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        for file in (hierarchy / layout.cgroup).rglob("cgroup.procs"):
            with suppress(OSError):
                found.update(int(pid) for pid in file.read_text().split())
    return sorted(found - {0, os.getpid()})


def remove(layout: Layout, wait_s: float = 5) -> None:
    """Deletes the group and all below it; the kernel frees a group shortly after its last process."""
    deadline = time.monotonic() + wait_s
    while left := [h / layout.cgroup for h in hierarchies() if (h / layout.cgroup).exists()]:
        for group in left:
            folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
            for folder in folders:
                with suppress(OSError):
                    folder.rmdir()
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def _delegate() -> None:
    # One by one: a controller that the machine lacks must not keep the others away.
    for controller in V2_CONTROLLERS:
        with suppress(OSError):
            (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
