"""Describes the cluster's gateway: Traefik on the node, with the Gateway API's definitions and one Gateway.

It is only there when it was asked for. It listens on the node's address, outside the pod network.
"""

from __future__ import annotations

import http.client
import json

from cluster.commands import run
from cluster.gateway_build import crds_folder
from cluster.layout import Layout, bin_folder
from cluster.processes import Daemon

CONTROLLER = "traefik.io/gateway-controller"
GROUP = "gateway.networking.k8s.io"
NAME = "rampway"
PORT = 8000
"""Both the listener's and the one that Traefik binds: it finds its own entry point by it."""
KINDS = ("gatewayclasses", "gateways", "httproutes")
RULES = (
    ([""], ["services", "namespaces", "nodes", "secrets", "configmaps"], ["get", "list", "watch"]),
    (["discovery.k8s.io"], ["endpointslices"], ["list", "watch"]),
    ([GROUP], ["*"], ["get", "list", "watch"]),
    ([GROUP], [f"{kind}/status" for kind in (*KINDS, "grpcroutes", "backendtlspolicies")],
     ["update", "patch"]),
)  # fmt: skip


def traefik(layout: Layout) -> Daemon:
    """The proxy and its controller in one process of the node."""
    return Daemon(
        "traefik",
        (
            str(bin_folder() / "traefik"),
            "--providers.kubernetesgateway=true",
            f"--entrypoints.web.address={layout.node_ip}:{PORT}",
            "--accesslog=true",
            "--ping=true",
            "--ping.entrypoint=web",
            "--global.checknewversion=false",
            "--global.sendanonymoususage=false",
        ),
        {"KUBECONFIG": str(layout.kubeconfig("traefik"))},
    )


def url(layout: Layout) -> str:
    """Where clients on the host reach the Gateway."""
    return f"http://{layout.node_ip}:{PORT}"


def objects() -> list[dict[str, object]]:
    """The class, the one Gateway that takes routes of every namespace, and Traefik's rights."""
    rbac = "rbac.authorization.k8s.io"
    role = {"name": "system:traefik"}
    rules = [{"apiGroups": g, "resources": r, "verbs": v} for g, r, v in RULES]
    binding = {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:traefik"}
    user = {"apiGroup": rbac, "kind": "User", "name": "system:traefik"}
    listener = {
        "name": "web",
        "port": PORT,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": role, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": binding,
            "subjects": [user],
        },
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "traefik"},
            "spec": {"controllerName": CONTROLLER},
        },
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Gateway",
            "metadata": {"name": NAME, "namespace": "default"},
            "spec": {"gatewayClassName": "traefik", "listeners": [listener]},
        },
    ]


def apply(layout: Layout) -> None:
    """Applies definitions and objects; a second time changes nothing."""
    _kubectl(layout, *APPLY, "-f", str(crds_folder()))
    definitions = [f"crd/{kind}.{GROUP}" for kind in KINDS]
    _kubectl(layout, "wait", "--for=condition=Established", "--timeout=30s", *definitions)
    manifest = {"apiVersion": "v1", "kind": "List", "items": objects()}
    _kubectl(layout, *APPLY, "-f", "-", stdin=json.dumps(manifest))


def missing(layout: Layout) -> str:
    """Why the gateway does not answer; empty when it does."""
    connection = http.client.HTTPConnection(layout.node_ip, PORT, timeout=2)
    try:
        connection.request("GET", "/ping")
        status = connection.getresponse().status
    except OSError as error:
        return f"the gateway does not answer at {url(layout)} ({error})"
    finally:
        connection.close()
    return "" if status == http.client.OK else f"the gateway answers {status} at {url(layout)}/ping"


APPLY = ("apply", "--server-side", "--force-conflicts", "--field-manager=rampway-cluster")


def _kubectl(layout: Layout, *arguments: str, stdin: str = "") -> None:
    kubectl = [bin_folder() / "kubectl", f"--kubeconfig={layout.kubeconfig()}"]
    run([*kubectl, *arguments], stdin=stdin, remedy="see the API server's log")
