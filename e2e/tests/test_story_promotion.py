"""Story 2: a good new image is promoted without losing a request."""

from __future__ import annotations

import pytest
from stage_builders import NAME, SIMULATED_V2, change, deploy, load

from harness.kube import Kube, wait_until

pytestmark = pytest.mark.e2e


def test_given_a_good_image_when_rolled_out_then_it_is_promoted_step_by_step_and_nothing_is_lost(
    kube: Kube,
) -> None:
    story = deploy(kube)
    traffic = load(kube)
    traffic.start()
    generation = change(kube, story, {"engine": {"image": SIMULATED_V2}})
    reason, message = story.until_ended(generation, timeout=500)
    new = kube.get("infd", NAME)["status"]["stableRevision"]["hash"]
    wait_until(
        "ten seconds served by the new revision alone",
        lambda: set(traffic.progress[-1]["served_by"]) == {new},
        timeout=60,
    )
    report = traffic.stop()

    assert reason == "Promoted", message
    status = kube.get("infd", NAME)["status"]
    assert status["stableRevision"]["image"] == SIMULATED_V2
    assert report["failed"] == 0, report
    assert min(report["answered_by_connection"].values()) > 50
    weights = [m.weight for m in story.moments if m.weight is not None]
    assert weights == sorted(weights)
    assert weights[-1] == 100
    phases = {m.phase for m in story.moments}
    assert {"Preflight", "Warming", "Shifting", "Analyzing", "Baking"} <= phases
