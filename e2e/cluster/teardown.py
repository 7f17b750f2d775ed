"""Removes everything of a cluster from the machine, whatever state it is in.

It needs no record of what was started: it finds processes, mounts and groups by the cluster's name.
"""

from __future__ import annotations

import re
import shutil
from contextlib import suppress
from pathlib import Path

from cluster import cgroups, network, processes
from cluster.commands import succeeds
from cluster.errors import ClusterError
from cluster.layout import Layout

CNI_RESULTS = Path("/var/lib/cni/results")
CONTAINER_LOG_LINKS = Path("/var/log/containers")
KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")  # fixed in the kubelet
SHARED_FOLDERS = (
    Path("/var/lib/rampway"),
    Path("/run/rampway"),
    CONTAINER_LOG_LINKS,
    CNI_RESULTS,
    CNI_RESULTS.parent,
    KUBELET_SOCKET.parent,
    KUBELET_SOCKET.parent.parent,
    Path("/run/containerd/s"),
    Path("/run/containerd"),
)


def tear_down(layout: Layout) -> None:
    """Kills, unmounts and deletes; raises ClusterError when something would stay behind."""
    # Daemons first: a living kubelet would restart what is killed below it.
    daemons = processes.strays(layout)
    scattered = _scattered_files(layout)
    processes.kill(daemons)
    processes.kill(cgroups.pids(layout))
    processes.kill(processes.strays(layout))  # whatever a daemon started while it was being ended
    _unmount(layout)
    network.remove(layout)
    cgroups.remove(layout)
    _delete_files(layout, scattered)
    if left := leftovers(layout):
        raise ClusterError(
            f"cluster {layout.name} could not be removed completely: {', '.join(left)} stay",
            "remove them by hand, or restart the machine",
        )


def leftovers(layout: Layout) -> list[str]:
    """What of the cluster is still on the machine, in words; empty after a clean `down`."""
    found = []
    if pids := {*processes.strays(layout), *cgroups.pids(layout)}:
        found.append(f"processes {sorted(pids)}")
    if points := mounts(layout):
        found.append(f"{len(points)} mounts under {layout.state} or {layout.sockets}")
    if layout.netns_path.exists():
        found.append(f"network namespace {layout.netns}")
    if succeeds(["ip", "link", "show", layout.veth]):
        found.append(f"interface {layout.veth}")
    found += [
        f"control group {hierarchy / layout.cgroup}"
        for hierarchy in cgroups.hierarchies()
        if (hierarchy / layout.cgroup).exists()
    ]
    found += [f"folder {path}" for path in (layout.state, layout.sockets) if path.exists()]
    return found


def mounts(layout: Layout) -> list[str]:
    """All mount points in the cluster's folders, deepest first."""
    below = (f"{layout.state}/", f"{layout.sockets}/")
    points = (line.split()[1] for line in Path("/proc/mounts").read_text().splitlines())
    ours = [_unescape(point) for point in points if point.startswith(below)]
    return sorted(ours, reverse=True)


def keep_logs(layout: Layout) -> None:
    """Saves the daemons' logs of a start that failed, in place of those of an earlier one."""
    if layout.logs.exists():
        shutil.rmtree(layout.failed_logs, ignore_errors=True)
        shutil.copytree(layout.logs, layout.failed_logs)


def _unmount(layout: Layout) -> None:
    for _ in range(3):  # stacked mounts show again when the upper one is gone
        points = mounts(layout)
        if not points:
            return
        for point in points:
            succeeds(["umount", "--lazy", point])


def _unescape(point: str) -> str:
    """/proc/mounts writes spaces and the like as three octal digits."""
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), point)


def _scattered_files(layout: Layout) -> list[Path]:
    """What containerd and the CNI plugins keep outside the cluster's folders, by container id.

    To be called while the state folder still tells the ids.
    """
    found = [*CNI_RESULTS.glob(f"{layout.netns}-*")]
    for container in layout.sockets.glob("containerd/io.containerd.runtime.v2.task/*/*"):
        found += CNI_RESULTS.glob(f"cni-loopback-{container.name}-*")
        with suppress(OSError):
            address = (container / "address").read_text().strip()
            found.append(Path(address.removeprefix("unix://")))
    if CONTAINER_LOG_LINKS.exists():
        links = [link for link in CONTAINER_LOG_LINKS.iterdir() if link.is_symlink()]
        found += [link for link in links if str(link.readlink()).startswith(f"{layout.state}/")]
    return found


def _delete_files(layout: Layout, scattered: list[Path]) -> None:
    for path in (layout.state, layout.sockets):
        shutil.rmtree(path, ignore_errors=True)
    for path in scattered:
        path.unlink(missing_ok=True)
    if not processes.kubelets():
        KUBELET_SOCKET.unlink(missing_ok=True)
    for folder in SHARED_FOLDERS:
        with suppress(OSError):  # another cluster, or something else on the machine, still uses it
            folder.rmdir()
