"""Where a cluster keeps its files and which addresses it takes.

It touches no file and no network: it only names them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import ClusterError

NAME_PATTERN = re.compile(r"[a-z][a-z0-9]{0,9}")
INDEXES = range(6)


def cache_folder() -> Path:
    """Everything that may be deleted and made again: binaries, wheels, Go's caches."""
    return Path.home() / ".cache" / "rampway"


def bin_folder() -> Path:
    """The built binaries; safe to put on PATH."""
    return cache_folder() / "cluster" / "bin"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths and addresses of one cluster.

    State lives outside the home folder so that `down` finds it whatever HOME is, and so that
    socket paths stay below the kernel's 108 bytes.
    """

    name: str = "rw"
    index: int = 0

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.name):
            raise ClusterError(
                f"cluster name is not usable: got {self.name!r}, need 1-10 of a-z 0-9, a letter first",
                "choose another --name",
            )
        if self.index not in INDEXES:
            raise ClusterError(
                f"cluster index is out of range: got {self.index}, need 0..{INDEXES[-1]}",
                "choose another --index; it selects the cluster's subnets",
            )

    @property
    def state(self) -> Path:
        """Everything that lives as long as the cluster."""
        return Path("/var/lib/rampway") / self.name

    @property
    def sockets(self) -> Path:
        """Sockets and mounts, on a file system that a reboot empties."""
        return Path("/run/rampway") / self.name

    @property
    def lock(self) -> Path:
        """Held by the command that changes the cluster."""
        return Path("/run/rampway") / f"{self.name}.lock"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.state / "pki"

    @property
    def logs(self) -> Path:
        """One file a daemon."""
        return self.state / "logs"

    @property
    def failed_logs(self) -> Path:
        """A copy of the logs of the last start that failed."""
        return Path("/var/log/rampway") / self.name

    @property
    def audit_log(self) -> Path:
        """Every write to the API server, when asked for."""
        return self.state / "audit.log"

    @property
    def netns(self) -> str:
        """The network namespace's name, and the pod network's."""
        return f"rampway-{self.name}"

    @property
    def netns_path(self) -> Path:
        """The file by which the namespace is entered."""
        return Path("/run/netns") / self.netns

    @property
    def veth(self) -> str:
        """The host's end of the only link into the namespace."""
        return f"veth-{self.name}"

    @property
    def cgroup(self) -> str:
        """The control group that holds all pods."""
        return f"rampway-{self.name}"

    @property
    def containerd_socket(self) -> Path:
        """Where `ctr` and the kubelet reach containerd."""
        return self.sockets / "containerd.sock"

    @property
    def node_ip(self) -> str:
        """The node's address, reachable from the host."""
        return f"10.89.{self.index}.2"

    @property
    def host_ip(self) -> str:
        """The host's address, reachable from pods."""
        return f"10.89.{self.index}.1"

    @property
    def node_subnet(self) -> str:
        """What node and host share."""
        return f"10.89.{self.index}.0/24"

    @property
    def pod_subnet(self) -> str:
        """What the host routes to the node for pods."""
        return f"10.24{self.index}.0.0/16"

    @property
    def node_pod_subnet(self) -> str:
        """What pods get their addresses from."""
        return f"10.24{self.index}.0.0/24"

    @property
    def service_subnet(self) -> str:
        """What Services get their addresses from."""
        return f"10.9{self.index}.0.0/16"

    @property
    def api_service_ip(self) -> str:
        """The Service default/kubernetes."""
        return f"10.9{self.index}.0.1"

    @property
    def dns_ip(self) -> str:
        """The Service kube-system/kube-dns."""
        return f"10.9{self.index}.0.10"

    @property
    def api_url(self) -> str:
        """The API server as seen from the host."""
        return f"https://{self.node_ip}:6443"

    def kubeconfig(self, user: str = "admin") -> Path:
        """The kubeconfig of one of the users that `pki` issues certificates to."""
        return self.state / f"{user}.kubeconfig"

    def log(self, daemon: str) -> Path:
        """Where a daemon's output goes."""
        return self.logs / f"{daemon}.log"

    def pid_file(self, daemon: str) -> Path:
        """Where `processes` records what it started."""
        return self.state / "pids" / f"{daemon}.json"
