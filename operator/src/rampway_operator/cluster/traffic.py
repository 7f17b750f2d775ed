"""Reads what a gateway does for an InferenceDeployment: its HTTPRoute, endpoints, and requests by pod.

It decides nothing and writes nothing.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime

from rampway_operator.cluster import readings
from rampway_operator.cluster.client import Client
from rampway_operator.cluster.memory import Memory
from rampway_operator.cluster.metric_sources import read_pods
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.resources import ENDPOINT_SLICES, HTTP_ROUTES
from rampway_operator.core import names, served
from rampway_operator.core.observed import Observed, RouteSeen, Served
from rampway_operator.core.routed import routed_pods
from rampway_operator.core.spec import Spec
from rampway_operator.errors import NotFound

__all__ = ["read_route", "see_route"]


async def read_route(client: Client, observed: Observed) -> tuple[RouteSeen | None, bool]:
    """Our HTTPRoute, or None; and whether the name is taken by someone else's."""
    try:
        found = await client.get(HTTP_ROUTES, observed.namespace, observed.name)
    except NotFound:
        return None, False
    if readings.controller_uid(found) != observed.uid:
        return None, True
    return readings.route_from(found), False


async def see_route(
    client: Client, http: PodHttp, spec: Spec, observed: Observed, memory: Memory, now: datetime
) -> Observed:
    """`observed` with what the provider gatewayAPI rests on; requests are counted while a rollout runs."""
    labels = f"{names.LABEL_NAME}={observed.name}"
    slices = await client.list_objects(ENDPOINT_SLICES, observed.namespace, labels=labels)
    endpoints = readings.endpoints_from(slices, observed.services)
    route, taken = await read_route(client, observed)
    error, reached = "", frozenset[str]()
    if observed.state.rollout is None:
        memory.served = Served()
    else:
        memory.served, error = await _count(http, spec, observed, route, memory, now)
        recent = served.still_reached(memory.served, now)
        reached = frozenset(p.name for p in observed.pods if p.uid in recent and not p.deleting)
    foreign = (*observed.foreign, f"{HTTP_ROUTES.kind}/{observed.name}") if taken else ()
    return dataclasses.replace(
        observed,
        route=route,
        endpoints=endpoints,
        served=memory.served,
        served_error=error,
        routed=routed_pods(route, endpoints, reached),
        foreign=foreign or observed.foreign,
    )


async def _count(
    http: PodHttp,
    spec: Spec,
    observed: Observed,
    route: RouteSeen | None,
    memory: Memory,
    now: datetime,
) -> tuple[Served, str]:
    """Requests by arm, of the pods in rotation: others only get smoke tests and warm-up prompts."""
    pods = [p for p in observed.pods if p.in_rotation and p.ready and p.ip and not p.deleting]
    counters, faults = await read_pods(http, spec, pods, now)
    arrived = {}
    for pod in pods:
        value = counters[pod.uid].arrived if pod.uid in counters else None
        if value is not None and pod.arm is not None:
            arrived[pod.uid] = (pod.arm, value)
        elif pod.uid in counters:
            faults[pod.uid] = f"pod {pod.name} does not count its requests"
    key = json.dumps([route.generation, route.weights], sort_keys=True) if route else ""
    found = served.add(memory.served, key, arrived, now)
    return found, next(iter(faults.values()), "")
