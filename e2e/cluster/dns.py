"""Describes cluster DNS: CoreDNS on the node, behind the usual Service kube-system/kube-dns.

It knows no names outside the cluster: nothing in the cluster can reach them anyway.
"""

from __future__ import annotations

import json

from cluster.commands import run
from cluster.layout import Layout, bin_folder
from cluster.processes import Daemon

PORTS = ({"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53})


def write_files(layout: Layout) -> None:
    """Writes the configuration that CoreDNS reads at its start."""
    (layout.state / "Corefile").write_text(f"""\
.:53 {{
  bind {layout.node_ip}
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {layout.kubeconfig("coredns")}
  }}
  cache 5
}}
""")


def coredns(layout: Layout) -> Daemon:
    """The resolver; a process of the node, so that it is there before the first pod."""
    return Daemon(
        "coredns", (str(bin_folder() / "coredns"), "-conf", str(layout.state / "Corefile"))
    )


def objects(layout: Layout) -> list[dict[str, object]]:
    """The Service with its one fixed endpoint, and CoreDNS' right to read."""
    metadata = {"name": "kube-dns", "namespace": "kube-system"}
    role = {"name": "system:coredns"}
    rules = [
        {
            "apiGroups": [""],
            "resources": ["services", "pods", "namespaces", "endpoints"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": role, "rules": rules},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:coredns",
            },
            "subjects": [user],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": layout.dns_ip, "ports": list(PORTS)},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                **metadata,
                "name": "kube-dns-node-0",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [layout.node_ip], "conditions": {"ready": True}}],
            "ports": list(PORTS),
        },
    ]


def apply(layout: Layout) -> None:
    """Applies the objects; a second time changes nothing."""
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects(layout)}
    run(
        [bin_folder() / "kubectl", f"--kubeconfig={layout.kubeconfig()}", "apply",
         "--server-side", "--force-conflicts", "--field-manager=rampway-cluster", "-f", "-"],
        stdin=json.dumps(manifest),
        remedy="see the API server's log",
    )  # fmt: skip
