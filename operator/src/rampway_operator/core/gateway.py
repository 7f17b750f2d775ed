"""The provider gatewayAPI: which shares the HTTPRoute shall have now, and whether traffic agrees with them.

It does not know how a route is written (`route.py`) nor how counts are judged (`served.py`). Pods come
first, then weight, then what the gateway and the pods report; a pod leaves the other way round.
"""

from __future__ import annotations

from rampway_operator.core.capacity import HALF
from rampway_operator.core.observed import Arm, RouteSeen
from rampway_operator.core.rotation import Rotation
from rampway_operator.core.route import Share, agrees, http_route
from rampway_operator.core.routed import arm_services, weights
from rampway_operator.core.served import Agreement, Judgement, judge
from rampway_operator.core.state import Phase
from rampway_operator.core.tick import Tick
from rampway_operator.core.verification import Check
from rampway_operator.core.view import candidate_hash

__all__ = ["check", "shares"]

HOLDING = frozenset({Phase.PREFLIGHT, Phase.WARMING, Phase.PAUSED})
"""No weight grows here; it may fall."""


def shares(tick: Tick) -> tuple[Share, ...]:
    """The shares wanted now, summing to 100; none while no arm of ours can serve.

    Weight only goes to an arm whose planned pods are ready endpoints of its Service, so it never points
    at nothing; what cannot serve loses it at once.
    """
    state, wish = tick.observed.state, tick.wish()
    endpoints = tick.observed.endpoints
    ready = {
        arm: len(endpoints.get(name, frozenset()) & wish.ready)
        for arm, name in arm_services(tick.observed).items()
    }
    trial, stable = candidate_hash(state), state.stable
    candidate = _candidate_weight(tick, wish, ready.get(Arm.CANDIDATE, 0))
    if stable is None:
        return (Share(Arm.CANDIDATE, trial, 100),) if trial is not None and candidate else ()
    if candidate and not ready.get(Arm.STABLE, 0) and trial is not None:
        return (Share(Arm.CANDIDATE, trial, 100),)
    wanted, copies = tick.aim.rotation.baseline, ready.get(Arm.BASELINE, 0)
    fits = wish.baseline and copies >= max(1, wanted) and candidate < HALF
    baseline = candidate if fits else 0
    if copies and len(wish.baseline) > wanted:
        # They stand in for stable pods that are not back yet, and serve the same revision.
        baseline = max(baseline, weights(tick.observed).get(Arm.BASELINE, 0))
    parts = [Share(Arm.STABLE, stable.hash, 100 - candidate - baseline)]
    if trial is not None:
        parts.append(Share(Arm.CANDIDATE, trial, candidate))
    parts.append(Share(Arm.BASELINE, stable.hash, baseline))
    return tuple(part for part in parts if part.weight > 0)


def check(tick: Tick) -> Check:
    """Applied, accepted, and seen: the three that a weight needs to count as verified."""
    observed, desired = tick.observed, tick.rollout.desired_weight
    route = observed.route
    wanted = http_route(tick.spec, observed, shares(tick))
    applied = weights(observed)
    asked = f"asked {desired} %, applied {applied.get(Arm.CANDIDATE, 0)} %"
    if route is None:
        return Check(f"{asked}: HTTPRoute {observed.name} to be made (needs the Gateway API CRDs)")
    if not agrees(route.spec, wanted["spec"]) or applied.get(Arm.CANDIDATE, 0) != desired:
        return Check(f"{asked}: HTTPRoute {observed.name} to carry it")
    longest = tick.spec.traffic.verify_max_delay
    overdue = min(observed.served.busy, tick.in_phase) > longest
    if fault := _refusal(route):
        late = tick.in_phase > longest
        return Check(f"{asked}: {fault}", overdue=late)
    if observed.served_error:
        late = tick.in_phase > tick.spec.progress_deadline
        return Check(f"{asked}: requests cannot be counted: {observed.served_error}", overdue=late)
    found = judge(
        observed.served,
        applied,
        tick.rollout.verified_weight,
        sticky=bool(tick.spec.traffic.affinity_header),
    )
    told = f"{asked}, observed {_seen(found)}"
    if found.agreement is Agreement.AGREES or tick.state.stable is None:
        return Check(told, verified=True, weight=desired)
    contradicts = found.agreement is Agreement.CONTRADICTS
    return Check(told, overdue=overdue and contradicts)


def _seen(found: Judgement) -> str:
    if found.agreement is Agreement.OPEN:
        return f"{found.requests} of {found.needed} requests needed to tell"
    return f"{found.share(Arm.CANDIDATE):.1f} % of {found.requests} requests"


def _refusal(route: RouteSeen) -> str:
    """What a gateway has against the route's present generation; empty when every one takes it."""
    if not route.parents:
        return "no gateway has answered yet"
    for parent in route.parents:
        if parent.generation < route.generation:
            return f"gateway {parent.name} has not seen generation {route.generation} yet"
        if parent.refused:
            return f"gateway {parent.name}: {parent.refused}"
    return ""


def _candidate_weight(tick: Tick, wish: Rotation, ready: int) -> int:
    """Percent for the candidate: what is asked once its pods are there, never more than that."""
    state, rollout = tick.observed.state, tick.observed.state.rollout
    if rollout is None or candidate_hash(state) is None or not ready:
        return 0
    before, desired = weights(tick.observed).get(Arm.CANDIDATE, 0), rollout.desired_weight
    if extra := len(wish.candidate) - tick.aim.rotation.candidate:
        # Pods that stand in for stable ones that are not back yet: capacity is not the price.
        desired = max(desired, min(before, desired + 100 * extra // max(1, tick.spec.replicas)))
    if state.phase in HOLDING or tick.cold or ready < tick.aim.rotation.candidate:
        return min(desired, before)
    return desired
