"""Checks the machine before anything is started: system, rights, programs, disk space.

It knows what each step needs, not how the step works.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from cluster.commands import run, stream, succeeds
from cluster.errors import ClusterError
from cluster.progress import heartbeat, say

# program -> Debian package; a program that is there already, from whatever package, is used.
CLUSTER_PROGRAMS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
}
CNI_PACKAGE = "containernetworking-plugins"
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
COMPILER_PROGRAMS = {"gcc": "gcc"}
BUILDAH_PROGRAMS = {"buildah": "buildah"}
DEBOOTSTRAP_PROGRAMS = {"debootstrap": "debootstrap"}
GIB = 1 << 30


def require_root_on_linux() -> None:
    """Network namespaces, mounts and cgroups need both."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise ClusterError(
            f"the local cluster cannot run here: got {platform.system()} {platform.machine()}, "
            "need Linux x86_64",
            "use any other Kubernetes: set E2E_KUBECONFIG (kind works)",
        )
    if os.geteuid() != 0:
        raise ClusterError(
            f"the local cluster needs root: got user id {os.geteuid()}, need 0",
            "run it with sudo, or use any other Kubernetes through E2E_KUBECONFIG",
        )


def refuse_kubernetes_node() -> None:
    """A kubelet deletes the device plugins' sockets of any other on the machine when it starts."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "exe").readlink().name != "kubelet":
                continue
            ours = b"/var/lib/rampway/" in (process / "cmdline").read_bytes()
        except OSError:  # ended, or a kernel thread
            continue
        if not ours:
            raise ClusterError(
                f"this machine is a Kubernetes node already: got kubelet, process {process.name}",
                "use its cluster through E2E_KUBECONFIG, or another machine",
            )


def ensure_programs(programs: dict[str, str]) -> None:
    """Installs the Debian packages of programs that are missing, saying so."""
    missing = {package for program, package in programs.items() if not shutil.which(program)}
    if programs is CLUSTER_PROGRAMS and cni_folder() is None:
        missing.add(CNI_PACKAGE)
    if "gcc" in programs and not has_static_libc():
        missing.add("libc6-dev")
    if missing:
        _install(sorted(missing))


def cni_folder() -> Path | None:
    """Where the network plugins lie, or None."""
    return next((folder for folder in CNI_FOLDERS if (folder / "ptp").exists()), None)


def has_static_libc() -> bool:
    """Whether gcc can link the pause program."""
    found = shutil.which("gcc") and run(["gcc", "-print-file-name=libc.a"], remedy="reinstall gcc")
    return bool(found) and Path(str(found).strip()).is_absolute()


def require_go(minimum: tuple[int, int]) -> None:
    """Go builds Kubernetes; older releases refuse its modules."""
    need = ".".join(map(str, minimum))
    remedy = f"install Go {need} or newer and put it on PATH"
    if not shutil.which("go"):
        raise ClusterError(f"Go is not installed: need {need}", remedy)
    text = run(["go", "env", "GOVERSION"], remedy=remedy).strip()
    got = re.match(r"go(\d+)\.(\d+)", text)
    if not got or (int(got[1]), int(got[2])) < minimum:
        raise ClusterError(f"Go is too old: got {text or 'nothing'}, need {need}", remedy)


def require_disk(folder: Path, need_gib: float, why: str) -> None:
    """Refuses to start what would fill the disk half-way."""
    free = shutil.disk_usage(_existing(folder)).free / GIB
    say(f"disk: {why} needs {need_gib:.0f} GiB, {free:.0f} GiB free in {_existing(folder)}")
    if free < need_gib:
        raise ClusterError(
            f"disk is too full: got {free:.1f} GiB free at {folder}, need {need_gib:.0f} GiB {why}",
            "free space, or point HOME at a larger disk",
        )


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.parents) if parent.exists())


def _install(packages: Iterable[str]) -> None:
    names = list(packages)
    remedy = f"install these with your system's package manager: {' '.join(names)}"
    if not shutil.which("apt-get"):
        raise ClusterError(f"programs are missing: need packages {' '.join(names)}", remedy)
    if os.geteuid() != 0:
        raise ClusterError(f"packages are missing: need {' '.join(names)}", remedy + ", as root")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names]
    with heartbeat(f"installing Debian packages: {' '.join(names)}", expected_s=30):
        if not succeeds([*install[:2], "-s", *names]):
            stream(["apt-get", "update", "-q"], on_line=_ignore, remedy=remedy, env=env)
        stream(install, on_line=_ignore, remedy=remedy, env=env)


def _ignore(_line: str) -> None:
    """Only the tail matters, and only on failure."""
