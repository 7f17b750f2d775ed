"""The HTTPRoute of an InferenceDeployment as a manifest, and whether a live one is the same.

It does not know which weights are right (`gateway.py`). Every default that the API server would fill in
is written out, so that a live route can be compared field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rampway_operator.core import affinity, objects
from rampway_operator.core.observed import Arm, Observed, Pool
from rampway_operator.core.spec import Gateway, Spec

__all__ = ["Share", "agrees", "http_route", "shares_of"]

API_VERSION: Final = "gateway.networking.k8s.io/v1"
_LISTS: Final = ("parentRefs", "hostnames", "rules")


@dataclass(frozen=True, slots=True)
class Share:
    """One arm's part of the traffic: `weight` in percent, above 0, sent to its revision's Service."""

    arm: Arm
    revision: str
    weight: int

    def service(self, name: str) -> str:
        """The Service of this arm."""
        pool = Pool.BASELINE if self.arm is Arm.BASELINE else Pool.MAIN
        return objects.child_name(name, self.revision, pool)


def http_route(spec: Spec, observed: Observed, shares: tuple[Share, ...]) -> dict[str, Any]:
    """The route named like the object. `shares` sum to 100; an arm without a share is not in it at all."""
    gateway = spec.traffic.gateway
    assert gateway is not None, "a route is only made for the provider gatewayAPI"
    body: dict[str, Any] = {
        "parentRefs": [_parent(ref) for ref in gateway.parent_refs],
        "rules": _rules(spec, gateway, observed.name, shares),
    }
    if gateway.hostnames:
        body["hostnames"] = list(gateway.hostnames)
    return {
        "apiVersion": API_VERSION,
        "kind": "HTTPRoute",
        "metadata": objects.metadata(observed, observed.name),
        "spec": body,
    }


def agrees(live: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether the live `spec` has everything of the wanted one, and no rule, host or parent beside it."""
    return all(_covers(live.get(key) or [], wanted.get(key) or []) for key in _LISTS) and all(
        set(found) <= set(rule)
        for found, rule in zip(live.get("rules") or [], wanted["rules"], strict=True)
    )


def shares_of(live: dict[str, Any]) -> dict[str, int]:
    """Service name to weight in percent, of a live `spec`: its last rule is the one for everybody."""
    rules = live.get("rules") or [{}]
    refs = rules[-1].get("backendRefs") or []
    weights = {str(ref.get("name")): int(ref.get("weight", 1)) for ref in refs}
    total = sum(weights.values())
    return {name: round(100 * part / total) for name, part in weights.items() if part > 0}


def _covers(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key in live and _covers(live[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(live, list)
            and len(live) == len(wanted)
            and all(_covers(a, b) for a, b in zip(live, wanted, strict=True))
        )
    return bool(live == wanted)


def _parent(ref: dict[str, Any]) -> dict[str, Any]:
    return {"group": "gateway.networking.k8s.io", "kind": "Gateway", **ref}


def _rules(
    spec: Spec, gateway: Gateway, name: str, shares: tuple[Share, ...]
) -> list[dict[str, Any]]:
    """Session rules before the rule for everybody: of two that match, more header matches win."""
    header = spec.traffic.affinity_header
    rules = []
    if header and len(shares) > 1:
        for share, expression in _sessions(shares):
            refs = [_backend(spec, name, share, 1)]
            rules.append(_rule(gateway, refs, {"name": header, "value": expression}))
    everybody = [_backend(spec, name, share, share.weight) for share in shares]
    return [*rules, _rule(gateway, everybody, None)]


def _sessions(shares: tuple[Share, ...]) -> list[tuple[Share, str]]:
    """One expression an arm, the one for any other id last: without it, stable's sessions would be split again."""
    by_arm = {share.arm: share for share in shares}
    trial, copies = by_arm.get(Arm.CANDIDATE), by_arm.get(Arm.BASELINE)
    rest = by_arm.get(Arm.STABLE) or shares[-1]
    found = []
    if trial is not None and trial is not rest:
        mine = affinity.candidate_buckets(trial.revision, trial.weight)
        found.append((trial, affinity.pattern(mine)))
    if copies is not None and trial is not None:
        mine = affinity.baseline_buckets(trial.revision, copies.weight)
        found.append((copies, affinity.pattern(mine)))
    return [*found, (rest, affinity.ANY_SESSION)]


def _backend(spec: Spec, name: str, share: Share, weight: int) -> dict[str, Any]:
    return {
        "group": "",
        "kind": "Service",
        "name": share.service(name),
        "port": spec.engine.port,
        "weight": weight,
    }


def _rule(
    gateway: Gateway, backends: list[dict[str, Any]], header: dict[str, str] | None
) -> dict[str, Any]:
    match: dict[str, Any] = {"path": {"type": "PathPrefix", "value": gateway.path}}
    if header is not None:
        match["headers"] = [{"type": "RegularExpression", **header}]
    rule: dict[str, Any] = {"matches": [match], "backendRefs": backends}
    if gateway.request_timeout:
        rule["timeouts"] = {"request": gateway.request_timeout}
    return rule
