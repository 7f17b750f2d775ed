"""Reads the block of a spec that says how traffic is moved, and by what.

It does not know rules that span blocks; those are in `rules.py`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from rampway_operator.core.reader import Node
from rampway_operator.core.spec import Gateway, Traffic

__all__ = ["read_traffic"]

_HOST: Final = r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_HEADER: Final = r"[A-Za-z0-9!#$%&'*+\-.^_`|~]+"
_TIMEOUT: Final = r"([0-9]{1,5}(h|m|s|ms)){1,4}"
_NAME: Final = r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?"


def read_traffic(node: Node) -> Traffic:
    """How traffic is moved; an absent provider is `service`."""
    node.object("provider", "affinity", "verify", "drain")
    provider = node.get("provider").object("service", "gatewayAPI")
    provider.get("service").object()
    gateway = provider.get("gatewayAPI")
    if gateway.present and provider.get("service").present:
        provider.fault("has service and gatewayAPI, need one of them")
    affinity = node.get("affinity").object("type", "header")
    kind = affinity.get("type").text("None", pattern="None|Header")
    header = affinity.get("header").object("name").get("name")
    if kind == "Header" and not gateway.present:
        affinity.fault("Header needs provider.gatewayAPI: a Service cannot read headers")
    if kind == "Header" and not header.present:
        header.fault("is missing: name the header that carries the session id")
    drain = node.get("drain").object("mode", "timeout")
    drain.get("mode").text("UntilIdle", pattern="UntilIdle")
    verify = node.get("verify").object("maxDelay")
    name = header.text("", pattern=_HEADER, most=256)
    return Traffic(
        gateway=_gateway(gateway) if gateway.present else None,
        affinity_header=name if kind == "Header" else "",
        verify_max_delay=verify.get("maxDelay").duration(
            timedelta(seconds=60), least=timedelta(seconds=1)
        ),
        drain_timeout=drain.get("timeout").duration(timedelta(minutes=10)),
    )


def _gateway(node: Node) -> Gateway:
    node.object("parentRefs", "hostnames", "path", "timeouts")
    refs = tuple(_parent(item) for item in node.get("parentRefs").items(8))
    if not refs:
        node.get("parentRefs").fault("is empty: name the Gateway that the route belongs to")
    timeouts = node.get("timeouts").object("request")
    return Gateway(
        parent_refs=refs,
        hostnames=tuple(
            item.text("", pattern=_HOST, most=253, least=1)
            for item in node.get("hostnames").items(16)
        ),
        path=node.get("path").text("/", pattern="/.*", most=1024),
        request_timeout=timeouts.get("request").text("", pattern=_TIMEOUT, most=32)
        if timeouts.get("request").present
        else "",
    )


def _parent(node: Node) -> dict[str, object]:
    node.object("name", "namespace", "sectionName", "port")
    if not node.get("name").present:
        node.get("name").fault("is missing")
    found: dict[str, object] = {"name": node.get("name").text("", pattern=_NAME, most=253)}
    for key in ("namespace", "sectionName"):
        if node.get(key).present:
            found[key] = node.get(key).text("", pattern=_NAME, most=253)
    if node.get("port").present:
        found["port"] = node.get("port").integer(1, 1, 65535)
    return found
