"""Stories 1 and 4: a first deployment serves; a candidate whose check fails never gets a request."""

from __future__ import annotations

import pytest
from stage_builders import NAME, OLD_LIBSTDCXX, change, deploy, load

from harness.kube import Kube, wait_until
from harness.sightings import instant, watch_pods
from harness.story import Story, condition

pytestmark = pytest.mark.e2e


def test_given_a_new_object_when_applied_then_it_is_checked_and_serves_real_tokens(
    kube: Kube,
) -> None:
    deploy(kube)
    status = kube.get("infd", NAME)["status"]
    assert status["readyReplicas"] == 2
    assert condition(status, "Ready")["status"] == "True"
    assert condition(status, "EnvironmentReady")["status"] == "True"
    pods = kube.list("pod", f"rampway.dev/name={NAME}")
    checks = [
        c for p in pods for c in p["status"]["initContainerStatuses"] if c["name"] == "check-env"
    ]
    assert [c["state"]["terminated"]["exitCode"] for c in checks] == [0, 0]


def test_given_an_old_libstdcxx_when_rolled_out_then_it_is_gone_in_seconds_without_a_request(
    kube: Kube,
) -> None:
    story = deploy(kube)
    traffic = load(kube)
    traffic.start()
    wait_until("twenty answers", lambda: (traffic.progress or [{}])[-1].get("answered", 0) > 20, 60)
    with watch_pods(kube, NAME) as sightings:
        generation = change(kube, story, {"engine": {"image": OLD_LIBSTDCXX}})
        reason, message = story.until_ended(generation, timeout=120)
        ended = kube.get("infd", NAME)["status"]["history"][-1]
        seen = sightings.of(ended["hash"])
    report = traffic.stop()

    assert reason == "RolledBack"
    assert "glibcxx" in message
    assert "3.4.28" in message
    assert seen.pods == 1
    assert not seen.engine_started
    assert not seen.was_routed
    assert seen.check_failed_at is not None
    assert (instant(ended["endedAt"]) - seen.check_failed_at).total_seconds() < 10
    assert report["failed"] == 0, report
    assert report["answered"] > 20
    assert len(report["served_by"]) == 1


def test_given_the_failed_image_when_the_spec_goes_back_then_nothing_is_rolled_out(
    kube: Kube,
) -> None:
    story = Story(kube, NAME, print)
    before = kube.get("infd", NAME)["status"]["stableRevision"]
    change(
        kube,
        story,
        {"engine": {"image": kube.get("infd", NAME)["status"]["stableRevision"]["image"]}},
    )
    story.until(
        lambda o: condition(o["status"], "Stalled").get("status") == "False", "a clean state", 60
    )
    assert kube.get("infd", NAME)["status"]["stableRevision"] == before
    assert kube.get("infd", NAME)["status"]["phase"] == "Idle"
