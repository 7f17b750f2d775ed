"""A canary behind a real gateway, watched by a client that records which revision served each request.

Needs `python -m cluster up --with-gateway` and E2E_GATEWAY, the address that `cluster env` prints as GATEWAY.
"""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
from stage_builders import LOAD, NAME, SIMULATED_V2, change, deploy

from harness.gate import ALPHA_Z, TrafficGate, moves_back, share
from harness.kube import Kube
from harness.story import outcome

pytestmark = pytest.mark.e2e

WEIGHTS = (5, 25, 50, 100)
ROUNDING = 0.005
"""Buckets are 256ths."""
STEPS = [
    step
    for weight in WEIGHTS[:-1]
    for step in ({"setWeight": weight}, {"pause": {"duration": "40s"}})
]
ROLLOUT = {
    "canary": {
        "maxSurge": 2,
        "baseline": {"enabled": False},
        "steps": [*STEPS, {"setWeight": 100}],
        "bake": "20s",
    }
}


@pytest.fixture(scope="module")
def gateway() -> str:
    url = os.environ.get("E2E_GATEWAY", "")
    if not url:
        pytest.skip("needs a gateway: cluster up --with-gateway, and its address in E2E_GATEWAY")
    return url


@pytest.mark.parametrize("header", ["", "x-session-id"], ids=["requests", "sessions"])
def test_given_a_canary_when_weights_grow_then_clients_are_served_as_asked_and_nothing_is_lost(
    kube: Kube, gateway: str, header: str
) -> None:
    provider = {"gatewayAPI": {"parentRefs": [{"name": "rampway", "namespace": "default"}]}}
    traffic: dict[str, Any] = {"provider": provider}
    if header:
        traffic["affinity"] = {"type": "Header", "header": {"name": header}}
    analysis = {"objectives": [{"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.01"}}]}
    story = deploy(kube, traffic=traffic, strategy=ROLLOUT, analysis=analysis)
    gate = TrafficGate(gateway, NAME, LOAD)
    gate.start()
    generation = change(kube, story, {"engine": {"image": SIMULATED_V2}})
    seen: dict[int, list[float]] = {weight: [] for weight in WEIGHTS}
    end = time.monotonic() + 900
    while time.monotonic() < end:
        status = kube.get("infd", NAME)["status"]
        weight = status.get("rollout", {}).get("weight", {})
        if weight and weight["desired"] == weight["verified"] == weight["applied"]:
            seen.setdefault(weight["desired"], []).append(time.time())
        if status["observedGeneration"] == generation and outcome(status):
            break
        time.sleep(0.5)
    records = gate.stop()
    status = kube.get("infd", NAME)["status"]
    new = status["stableRevision"]["hash"]

    assert outcome(status) is not None
    assert status["stableRevision"]["image"] == SIMULATED_V2
    assert [o for o in records if o.error] == []
    for weight in WEIGHTS:
        first, last = seen[weight][0], seen[weight][-1]
        within = [o for o in records if first <= o.at - o.total and o.at <= last]
        assert len(within) > 50, weight
        found, error = share(within, new)
        assert abs(found - weight / 100) <= ALPHA_Z * error + ROUNDING, (weight, found, error)
    if header:
        assert moves_back(records, new) == []
