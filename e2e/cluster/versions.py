"""Which programs the cluster is made of: names, versions, packages, and how long each builds.

The exact versions of everything below them are in go/<component>/go.mod and go.sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.37.2"
ETCD = "3.7.3"
HELM = "4.3.1"
COREDNS = "1.15.0"
PAUSE = "1"
TRAEFIK = "3.7.13"
GO_MINIMUM = (1, 26)

SOURCES = Path(__file__).parent / "go"


@dataclass(frozen=True, slots=True)
class Binary:
    """One program to build; `seconds` is what it took on two cores after those before it."""

    name: str
    version: str
    component: str
    package: str
    seconds: int
    stamps: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The committed module, or C source, that it is built from."""
        return SOURCES / self.component


def _kubernetes(name: str, seconds: int) -> Binary:
    # Without these, `kubectl version` and the node's report say v0.0.0 and Helm's checks fail.
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    major, minor, _ = KUBERNETES.split(".")
    values = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor}
    stamps = tuple(f"{p}.{key}={value}" for p in packages for key, value in values.items())
    return Binary(name, KUBERNETES, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", seconds, stamps)


BINARIES = (
    Binary("pause", PAUSE, "pause", "pause.c", 1),
    _kubernetes("kube-apiserver", 340),
    _kubernetes("kube-controller-manager", 95),
    _kubernetes("kube-scheduler", 15),
    _kubernetes("kubelet", 35),
    _kubernetes("kube-proxy", 15),
    _kubernetes("kubectl", 25),
    Binary("etcd", ETCD, "etcd", "go.etcd.io/etcd/server/v3", 45),
    Binary(
        "helm", HELM, "helm", "helm.sh/helm/v4/cmd/helm", 120,
        (f"helm.sh/helm/v4/internal/version.version=v{HELM}",),
    ),
    Binary("coredns", COREDNS, "coredns", ".", 90),
)  # fmt: skip

GATEWAY_BINARIES = (
    Binary("traefik", TRAEFIK, "traefik", "github.com/traefik/traefik/v3/cmd/traefik", 300),
)
"""Built and started only when asked for."""
