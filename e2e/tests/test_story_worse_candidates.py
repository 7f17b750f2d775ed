"""Story 3: a slower candidate and one without its prefix cache are rolled back, with numbers."""

from __future__ import annotations

import pytest
from stage_builders import ARGUMENTS, NAME, change, deploy, load

from harness.kube import Kube

pytestmark = pytest.mark.e2e


def _rolled_back(kube: Kube, arguments: list[str], objective: str) -> None:
    story = deploy(kube)
    traffic = load(kube)
    traffic.start()
    stable = kube.get("infd", NAME)["status"]["stableRevision"]["hash"]
    generation = change(kube, story, {"engine": {"args": arguments}})
    reason, message = story.until_ended(generation, timeout=400)
    report = traffic.stop()

    assert reason == "RolledBack"
    assert objective in message
    status = kube.get("infd", NAME)["status"]
    assert status["stableRevision"]["hash"] == stable
    assert report["failed"] == 0, report
    assert set(report["served_by"]) >= {stable}
    assert len(report["served_by"]) == 2, "the candidate was judged on real requests"
    assert any(
        d["reason"] == "RolledBack" or objective in d["message"] for d in status["decisions"]
    )


def test_given_a_candidate_a_third_as_fast_when_judged_then_it_is_rolled_back_on_latency(
    kube: Kube,
) -> None:
    _rolled_back(kube, [*ARGUMENTS, "--simulated-speed", "0.03"], "ttft-tail")


def test_given_a_candidate_without_prefix_cache_when_judged_then_it_is_rolled_back_on_hit_rate(
    kube: Kube,
) -> None:
    # so fast that computing every prompt takes no longer than a hit does on stable
    _rolled_back(kube, [*ARGUMENTS, "--prefix-cache", "off", "--simulated-speed", "2"], "hit-rate")
