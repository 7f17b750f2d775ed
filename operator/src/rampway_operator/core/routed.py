"""Which pods and arms get traffic through the live HTTPRoute, and which must stay until they do not.

It decides no weight (`gateway.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from rampway_operator.core import objects
from rampway_operator.core.observed import Arm, Observed, Pod, Pool, RouteSeen
from rampway_operator.core.rotation import Rotation
from rampway_operator.core.served import GRACE
from rampway_operator.core.spec import Spec
from rampway_operator.core.view import arms, candidate_hash

__all__ = ["arm_services", "keep_routed", "routed_pods", "weights"]


def arm_services(observed: Observed) -> dict[Arm, str]:
    """The Service of each arm that the stored state knows."""
    state, found = observed.state, dict[Arm, str]()
    if state.stable is not None:
        found[Arm.STABLE] = objects.child_name(observed.name, state.stable.hash)
        found[Arm.BASELINE] = objects.child_name(observed.name, state.stable.hash, Pool.BASELINE)
    trial = candidate_hash(state)
    if trial is not None:
        found[Arm.CANDIDATE] = objects.child_name(observed.name, trial)
    return found


def weights(observed: Observed) -> dict[Arm, int]:
    """The weights in percent that the live route has, by arm; arms without weight are left out."""
    live = observed.route.weights if observed.route is not None else {}
    services = arm_services(observed)
    return {arm: live[name] for arm, name in services.items() if live.get(name, 0) > 0}


def routed_pods(
    route: RouteSeen | None,
    endpoints: Mapping[str, frozenset[str]],
    still_reached: Iterable[str],
) -> frozenset[str]:
    """Names of pods that get traffic: ready behind a Service with weight, or reached by requests just now.

    `endpoints` is Service name to ready pods, `still_reached` the pods in rotation that new requests came
    to since the last reading, whatever the route says.
    """
    weighted = route.weights if route is not None else {}
    behind = [pods for name, pods in endpoints.items() if weighted.get(name, 0) > 0]
    return frozenset[str]().union(*behind, still_reached)


def keep_routed(wish: Rotation, spec: Spec, observed: Observed, now: datetime) -> Rotation:
    """`wish` and, of an arm that is to leave, the pods that still get traffic: weight goes before labels.

    A gateway takes some seconds to follow. Not for ever: what a gateway still sends `verify.maxDelay` after its route changed ends with the pods.
    """
    since, live, parts = observed.served.since, weights(observed), arms(observed)
    fresh = since is None or now - since <= GRACE
    overdue = since is not None and now - since > spec.traffic.verify_max_delay

    def kept(arm: Arm, pods: tuple[Pod, ...], chosen: frozenset[str]) -> frozenset[str]:
        if chosen or (overdue and arm not in live):
            return chosen
        staying = (p for p in pods if fresh or p.name in observed.routed)
        return frozenset(p.name for p in staying if p.in_rotation)

    stable = kept(Arm.STABLE, parts.stable, wish.stable)
    candidate = kept(Arm.CANDIDATE, parts.candidate, wish.candidate)
    baseline = kept(Arm.BASELINE, parts.baseline, wish.baseline)
    names = stable | candidate | baseline
    pods = (*parts.stable, *parts.candidate, *parts.baseline)
    ready = frozenset(p.name for p in pods if p.ready and p.name in names)
    return Rotation(stable, candidate, baseline, ready)
