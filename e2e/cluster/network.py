"""Makes and removes the cluster's network: one namespace, one veth pair, two routes.

No address translation and no default route: nothing in the cluster can reach another machine,
and the host's firewall is never touched. It knows nothing of pods.
"""

from __future__ import annotations

import ipaddress
import json

from cluster.commands import run, succeeds
from cluster.errors import ClusterError
from cluster.layout import Layout

REMEDY = "run `python -m cluster down` and try again; needs CAP_NET_ADMIN and CAP_SYS_ADMIN"


def ensure(layout: Layout) -> bool:
    """Whether the namespace had to be made anew; then everything that ran in an old one is lost."""
    _refuse_overlap(layout)
    fresh = not _is_namespace(layout)
    if fresh:
        remove(layout)
        run(["ip", "netns", "add", layout.netns], remedy=REMEDY)
    if not succeeds(["ip", "link", "show", layout.veth]):
        run(
            ["ip", "link", "add", layout.veth, "type", "veth", "peer", "name", "eth0",
             "netns", layout.netns],
            remedy=REMEDY,
        )  # fmt: skip
    prefix = layout.node_subnet.partition("/")[2]
    run(["ip", "addr", "replace", f"{layout.host_ip}/{prefix}", "dev", layout.veth], remedy=REMEDY)
    run(["ip", "link", "set", layout.veth, "up"], remedy=REMEDY)
    _inside(layout, "ip", "link", "set", "lo", "up")
    _inside(layout, "ip", "addr", "replace", f"{layout.node_ip}/{prefix}", "dev", "eth0")
    _inside(layout, "ip", "link", "set", "eth0", "up")
    _inside(layout, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    for subnet in (layout.pod_subnet, layout.service_subnet):
        run(["ip", "route", "replace", subnet, "via", layout.node_ip], remedy=REMEDY)
    return fresh


def remove(layout: Layout) -> None:
    """Deletes what `ensure` made; the routes go with the veth pair."""
    succeeds(["ip", "link", "del", layout.veth])
    if layout.netns_path.exists():
        succeeds(["ip", "netns", "del", layout.netns])
        layout.netns_path.unlink(missing_ok=True)


def overlapping(routes: list[dict[str, str]], layout: Layout) -> str:
    """The first route of another device inside the cluster's subnets, or nothing."""
    subnets = [layout.node_subnet, layout.pod_subnet, layout.service_subnet]
    ours = [ipaddress.IPv4Network(subnet) for subnet in subnets]
    for route in routes:
        target = route.get("dst", "default")
        if target == "default" or route.get("dev") == layout.veth:
            continue
        network = ipaddress.IPv4Network(target, strict=False)
        # A wider route (a VPN's 10.0.0.0/8) may stay: ours is more specific and wins for its part.
        if any(network.subnet_of(our) for our in ours):
            return f"{target} dev {route.get('dev', '?')}"
    return ""


def _refuse_overlap(layout: Layout) -> None:
    routes = json.loads(run(["ip", "-j", "-4", "route", "show"], remedy=REMEDY) or "[]")
    if found := overlapping(routes, layout):
        raise ClusterError(
            f"subnets of index {layout.index} are taken: got route {found}",
            "another cluster runs there: take it down, or choose another --index",
        )


def _is_namespace(layout: Layout) -> bool:
    return layout.netns_path.exists() and succeeds(
        ["nsenter", f"--net={layout.netns_path}", "true"]
    )


def _inside(layout: Layout, *argv: str) -> None:
    run(["nsenter", f"--net={layout.netns_path}", "--", *argv], remedy=REMEDY)
