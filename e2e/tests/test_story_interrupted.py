"""The operator is killed, or the spec changes, in the middle of a rollout."""

from __future__ import annotations

import pytest
from stage_builders import ARGUMENTS, NAME, SIMULATED_V2, change, deploy, load

from harness.kube import Kube

pytestmark = pytest.mark.e2e


def test_given_a_rollout_when_the_operator_is_killed_again_and_again_then_it_still_promotes_once(
    kube: Kube,
) -> None:
    story = deploy(kube)
    traffic = load(kube)
    traffic.start()
    generation = change(kube, story, {"engine": {"image": SIMULATED_V2}})
    for phase in ("Preflight", "Warming", "Analyzing", "Baking"):
        story.until(lambda o, p=phase: o["status"].get("phase") == p, f"phase {phase}", timeout=300)
        kube.kubectl(
            "delete", "pod", "-l", "app.kubernetes.io/name=rampway", "--force", "--grace-period=0"
        )
    reason, message = story.until_ended(generation, timeout=500)
    report = traffic.stop()

    assert reason == "Promoted", message
    assert report["failed"] == 0, report
    status = kube.get("infd", NAME)["status"]
    assert [h["number"] for h in status["history"]] == [1, 2]
    assert len({rs["metadata"]["name"] for rs in kube.list("rs", f"rampway.dev/name={NAME}")}) == 2


def test_given_a_rollout_when_the_spec_changes_then_the_newest_one_is_rolled_out(
    kube: Kube,
) -> None:
    story = deploy(kube)
    worse = [*ARGUMENTS, "--simulated-speed", "0.095"]
    change(kube, story, {"engine": {"args": worse}})
    story.until(
        lambda o: o["status"].get("phase") not in ("Idle", "Preflight"),
        "the rollout's start",
        timeout=120,
    )
    traffic = load(kube)
    traffic.start()
    generation = change(
        kube, story, {"engine": {"args": [*ARGUMENTS, "--simulated-speed", "0.105"]}}
    )
    reason, message = story.until_ended(generation, timeout=600)
    report = traffic.stop()

    assert reason == "Promoted", message
    assert report["failed"] == 0, report
    outcomes = [h["outcome"] for h in kube.get("infd", NAME)["status"]["history"]]
    assert outcomes[-2:] == ["Superseded", "Promoted"]
