"""Issues the cluster's certificates and writes a kubeconfig for each of its users.

It knows who the users are, not what they may do: Kubernetes' own roles decide that.
"""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from cluster.commands import run
from cluster.layout import Layout

DAYS = "3650"
REMEDY = "openssl 3 is needed: check `openssl version`"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate: file name, user, group, and the names it is valid for as a server."""

    file: str
    user: str
    group: str
    names: tuple[str, ...] = ()


def identities(layout: Layout) -> tuple[Identity, ...]:
    """Everyone in the cluster who talks to the API server, and the API server itself."""
    return (
        Identity(
            "apiserver", "kube-apiserver", "kubernetes",
            ("IP:127.0.0.1", f"IP:{layout.api_service_ip}", f"IP:{layout.node_ip}",
             "DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default",
             "DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local"),
        ),
        Identity("admin", "admin", "system:masters"),
        Identity("controller-manager", "system:kube-controller-manager", "kubernetes"),
        Identity("scheduler", "system:kube-scheduler", "kubernetes"),
        Identity("kubelet", "system:node:node-0", "system:nodes",
                 ("DNS:node-0", f"IP:{layout.node_ip}")),
        Identity("kube-proxy", "system:kube-proxy", "kubernetes"),
        Identity("coredns", "system:coredns", "kubernetes"),
        Identity("traefik", "system:traefik", "kubernetes"),
    )  # fmt: skip


def ensure(layout: Layout) -> None:
    """Makes all keys, certificates and kubeconfigs once; a half-made set is made again."""
    done = layout.pki / "done"
    if done.exists():
        return
    shutil.rmtree(layout.pki, ignore_errors=True)
    layout.pki.mkdir(parents=True, mode=0o700)
    _issue(layout.pki, Identity("ca", "rampway-local-cluster", "kubernetes"))
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-out", layout.pki / "service-accounts.key")  # fmt: skip
    _openssl("pkey", "-in", layout.pki / "service-accounts.key", "-pubout",
             "-out", layout.pki / "service-accounts.pub")  # fmt: skip
    for identity in identities(layout):
        _issue(layout.pki, identity)
        if identity.file != "apiserver":
            _write_kubeconfig(layout, identity.file)
    done.touch()


def _issue(folder: Path, identity: Identity) -> None:
    subject = f"/O={identity.group}/CN={identity.user}"
    argv: list[str | Path] = [
        "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc",
        "-subj", subject, "-days", DAYS,
        "-keyout", folder / f"{identity.file}.key", "-out", folder / f"{identity.file}.crt",
    ]  # fmt: skip
    if identity.file != "ca":
        argv += ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
        argv += ["-addext", "basicConstraints=critical,CA:FALSE"]
        argv += ["-addext", "extendedKeyUsage=serverAuth,clientAuth"]
        names = ",".join(identity.names) or f"DNS:{identity.file}"
        argv += ["-addext", f"subjectAltName={names}"]
    _openssl(*argv)


def _openssl(*argv: str | Path) -> None:
    run(["openssl", *argv], remedy=REMEDY)


def _write_kubeconfig(layout: Layout, user: str) -> None:
    def data(file: str) -> str:
        return base64.b64encode((layout.pki / file).read_bytes()).decode()

    cluster = {"server": layout.api_url, "certificate-authority-data": data("ca.crt")}
    keys = {
        "client-certificate-data": data(f"{user}.crt"),
        "client-key-data": data(f"{user}.key"),
    }
    context = f"rampway-{layout.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": user, "user": keys}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    file = layout.kubeconfig(user)
    file.touch(mode=0o600)
    file.write_text(json.dumps(config, indent=1))  # JSON is YAML
