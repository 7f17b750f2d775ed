"""Describes the control plane: etcd, API server, controller manager, scheduler.

It starts nothing: `lifecycle` does.
"""

from __future__ import annotations

import json

from cluster.layout import Layout, bin_folder
from cluster.processes import Daemon

ETCD_URL = "http://127.0.0.1:2379"
# Reads are not recorded: the tests ask who wrote what, and how often.
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


def write_files(layout: Layout, *, audit: bool) -> None:
    """Writes what the daemons read at their start."""
    if audit:
        (layout.state / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY, indent=1))


def etcd(layout: Layout) -> Daemon:
    """The store; no fsync, because nothing here must survive a power cut."""
    return Daemon(
        "etcd",
        (
            str(bin_folder() / "etcd"),
            f"--data-dir={layout.state / 'etcd'}",
            f"--listen-client-urls={ETCD_URL}",
            f"--advertise-client-urls={ETCD_URL}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ),
    )


def api_server(layout: Layout, *, audit: bool) -> Daemon:
    """The API server, with an audit log of all writes when asked."""
    audit_flags = (
        f"--audit-policy-file={layout.state / 'audit-policy.json'}",
        f"--audit-log-path={layout.audit_log}",
    )
    return Daemon(
        "kube-apiserver",
        (
            str(bin_folder() / "kube-apiserver"),
            f"--etcd-servers={ETCD_URL}",
            "--secure-port=6443",
            f"--advertise-address={layout.node_ip}",
            f"--service-cluster-ip-range={layout.service_subnet}",
            f"--client-ca-file={layout.pki / 'ca.crt'}",
            f"--tls-cert-file={layout.pki / 'apiserver.crt'}",
            f"--tls-private-key-file={layout.pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={layout.pki / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={layout.pki / 'service-accounts.key'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--kubelet-client-certificate={layout.pki / 'admin.crt'}",
            f"--kubelet-client-key={layout.pki / 'admin.key'}",
            # node-0 is no name that the host resolves; logs and exec go to the address.
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            *(audit_flags if audit else ()),
        ),
    )


def controller_manager(layout: Layout) -> Daemon:
    """The controllers; one copy, so no election."""
    return Daemon(
        "kube-controller-manager",
        (
            str(bin_folder() / "kube-controller-manager"),
            *_as_user(layout, "controller-manager"),
            f"--cluster-cidr={layout.pod_subnet}",
            f"--service-account-private-key-file={layout.pki / 'service-accounts.key'}",
            f"--root-ca-file={layout.pki / 'ca.crt'}",
            "--use-service-account-credentials",
        ),
    )


def scheduler(layout: Layout) -> Daemon:
    """The scheduler; one copy, so no election."""
    return Daemon(
        "kube-scheduler", (str(bin_folder() / "kube-scheduler"), *_as_user(layout, "scheduler"))
    )


def _as_user(layout: Layout, user: str) -> tuple[str, ...]:
    config = layout.kubeconfig(user)
    return (
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    )
