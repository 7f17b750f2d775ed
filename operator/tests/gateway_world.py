"""A model world whose traffic goes through a gateway that may be slow, deaf or broken."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from world_builders import World, basic_spec
from world_cluster import WorldPod

from rampway_operator.core import names, served
from rampway_operator.core.actions import Action, ApplyRoute, DeleteObject
from rampway_operator.core.observed import Arm, Observed, ParentSeen, RouteSeen, Served
from rampway_operator.core.route import shares_of
from rampway_operator.core.routed import routed_pods
from rampway_operator.core.spec import Spec

GATEWAY = {"parentRefs": [{"name": "public"}]}


@dataclass
class GatewayWorld(World):
    """`lag_s` after a route is applied, requests follow it, unless the gateway is at fault."""

    lag_s: float = 2.0
    per_second: float = 50.0
    deaf: bool = False
    """The gateway accepts routes and goes on as before."""
    dropped: Arm | None = None
    """The gateway sends nothing to this arm."""
    refused: str = ""
    """What the gateway says against every route."""
    route: dict[str, Any] | None = None
    route_generation: int = 0
    route_writes: int = 0
    plane: list[tuple[datetime, dict[str, int]]] = field(default_factory=list)
    arrived: dict[str, float] = field(default_factory=dict)
    """Pod UID to requests that reached it."""
    lost: float = 0.0
    """Requests that were sent to a Service without a ready endpoint."""
    debts: dict[str, float] = field(default_factory=dict)
    counts: Served = field(default_factory=Served)

    def weights(self) -> dict[str, int]:
        """Service to percent, as the gateway acts now."""
        followed = [w for at, w in self.plane if self.now - at >= timedelta(seconds=self.lag_s)]
        if self.deaf:
            return self.plane[0][1] if self.plane else {}
        return followed[-1] if followed else {}

    def behind(self, service: str) -> list[WorldPod]:
        """The ready endpoints of a Service."""
        manifest = self.services.get(service)
        if manifest is None:
            return []
        chosen = manifest["spec"]["selector"].items()
        return [p for p in self.live() if chosen <= p.labels.items() and self.is_ready(p)]

    def act(self, spec: Spec, action: Action) -> None:
        match action:
            case ApplyRoute():
                wanted = action.manifest["spec"]
                for name, weight in shares_of(wanted).items():
                    assert weight == 0 or self.behind(name), f"{weight} % would go to nothing"
                assert sum(shares_of(wanted).values()) == 100
                self.route, self.route_writes = copy.deepcopy(wanted), self.route_writes + 1
                self.route_generation += 1
                self.plane.append((self.now, shares_of(wanted)))
            case DeleteObject(kind="HTTPRoute"):
                self.route = None
            case _:
                super().act(spec, action)

    def observe(self) -> Observed:
        seen = super().observe()
        if self.parsed.traffic.gateway is None:
            return seen
        route = self._seen_route()
        pods = [p for p in seen.pods if p.in_rotation and p.ready and not p.deleting]
        arrived = {p.uid: (p.arm, self.arrived.get(p.uid, 0.0)) for p in pods if p.arm}
        key = f"{self.route_generation}" if route else ""
        self.counts = served.add(self.counts, key, arrived, self.now)
        endpoints = {s: frozenset(p.name for p in self.behind(s)) for s in self.services}
        recent = served.still_reached(self.counts, self.now)
        reached = frozenset(p.name for p in seen.pods if p.uid in recent and not p.deleting)
        return replace(
            seen,
            route=route,
            endpoints=endpoints,
            served=self.counts,
            routed=routed_pods(route, endpoints, reached),
        )

    def _seen_route(self) -> RouteSeen | None:
        if self.route is None:
            return None
        parent = ParentSeen("public", self.route_generation, self.refused)
        weights = shares_of(self.route)
        return RouteSeen("u-route", self.route_generation, self.route, weights, (parent,))

    def advance(self, seconds: float) -> None:
        self._send(seconds)
        super().advance(seconds)

    def _send(self, seconds: float) -> None:
        for service, weight in self.weights().items():
            due = self.debts.get(service, 0.0) + self.per_second * seconds * weight / 100
            self.debts[service] = due % 1.0
            pods = self.behind(service)
            if self.dropped is not None and all(self._arm(p) is self.dropped for p in pods):
                continue
            if not pods:
                self.lost += int(due)
            for number in range(int(due)):
                uid = pods[number % len(pods)].uid if pods else ""
                self.arrived[uid] = self.arrived.get(uid, 0.0) + 1

    def _arm(self, pod: WorldPod) -> Arm:
        return Arm(pod.labels[names.LABEL_ARM])

    def _route(self) -> None:
        getting: Iterable[WorldPod] = (
            p for s, w in self.weights().items() if w for p in self.behind(s)
        )
        self.routed = {p.name: self.now for p in getting}


def gateway_world(seed: int = 0, **changes: Any) -> GatewayWorld:
    """A world with the provider gatewayAPI; `changes` are top-level blocks of its spec."""
    traffic = {"provider": {"gatewayAPI": GATEWAY}, "verify": {"maxDelay": "60s"}}
    return GatewayWorld(spec=basic_spec(**({"traffic": traffic} | changes)), seed=seed)
