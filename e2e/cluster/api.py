"""Reads the cluster's API server and DNS directly, to say what is not ready yet and why.

It changes nothing: objects are applied by kubectl.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import struct

from cluster.layout import Layout

TIMEOUT_S = 2.0
API_PORT = 6443
KUBELET_PORT = 10250
DNS_PROBE = "kubernetes.default.svc.cluster.local"


def get(layout: Layout, path: str, port: int = API_PORT) -> tuple[int, bytes]:
    """Status and body of a GET as admin; OSError when nobody answers."""
    context = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
    context.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")
    connection = http.client.HTTPSConnection(
        layout.node_ip, port, timeout=TIMEOUT_S, context=context
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(f"{type(error).__name__}") from error
    finally:
        connection.close()


def server_missing(layout: Layout) -> str:
    """What keeps the API server from serving; empty when nothing does."""
    try:
        return "" if get(layout, "/readyz")[0] == 200 else "the API server is not ready"
    except OSError as error:
        return f"the API server does not answer ({error})"


def control_plane_missing(layout: Layout) -> str:
    """What keeps the API server and its controllers from serving; empty when nothing does."""
    if reason := server_missing(layout):
        return reason
    try:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        if get(layout, account)[0] != 200:
            return "the controllers have made no default service account yet"
    except OSError as error:
        return f"the API server does not answer ({error})"
    return ""


def node_missing(layout: Layout) -> str:
    """What keeps the node from running pods; empty when nothing does."""
    try:  # first the kubelet itself: what it reported may be from before it died
        if get(layout, "/healthz", KUBELET_PORT)[0] != 200:
            return "the kubelet is not healthy"
    except OSError as error:
        return f"the kubelet does not answer ({error})"
    try:
        status, body = get(layout, "/api/v1/nodes/node-0")
    except OSError as error:
        return f"the API server does not answer ({error})"
    if status != 200:
        return "the kubelet has not registered the node"
    node = json.loads(body)
    conditions = {item["type"]: item for item in node["status"].get("conditions", [])}
    ready = conditions.get("Ready", {"status": "False", "message": "no condition yet"})
    if ready["status"] != "True":
        return f"the node is not ready: {ready.get('message', '')[:120]}"
    taints = [taint["key"] for taint in node["spec"].get("taints", [])]
    return f"the node is tainted: {', '.join(taints)}" if taints else ""


def dns_missing(layout: Layout) -> str:
    """What keeps names from resolving through the DNS Service; empty when nothing does.

    Asking from the host proves the routes, kube-proxy and CoreDNS at once.
    """
    try:
        addresses = resolve(layout.dns_ip, DNS_PROBE)
    except OSError as error:
        return f"cluster DNS does not answer at {layout.dns_ip} ({error})"
    if layout.api_service_ip not in addresses:
        return f"cluster DNS does not know {DNS_PROBE}: got {addresses or 'no address'}"
    return ""


def resolve(server: str, name: str, port: int = 53) -> list[str]:
    """The IPv4 addresses of a name from one server; OSError when it does not answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(TIMEOUT_S)
        client.connect((server, port))
        client.send(dns_query(name))
        return dns_addresses(client.recv(4096))


def dns_query(name: str) -> bytes:
    """An RFC 1035 query for the A records of a name."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)


def dns_addresses(answer: bytes) -> list[str]:
    """The A records of an answer; other records are skipped."""
    _, _, questions, answers, _, _ = struct.unpack_from(">6H", answer)
    at = 12
    for _ in range(questions):
        at = _skip_name(answer, at) + 4
    found = []
    for _ in range(answers):
        at = _skip_name(answer, at)
        kind, _, _, length = struct.unpack_from(">2HIH", answer, at)
        at += 10
        if kind == 1:
            found.append(socket.inet_ntoa(answer[at : at + length]))
        at += length
    return found


def _skip_name(answer: bytes, at: int) -> int:
    while answer[at] != 0:
        if answer[at] >= 0xC0:  # a pointer to an earlier name ends this one
            return at + 2
        at += answer[at] + 1
    return at + 1
