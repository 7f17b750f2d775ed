"""The four user stories, played on a prepared cluster and told as they happen.

It knows what each story must lead to and raises StoryFailed if it does not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import yaml

from demo.stage import CHAT, say
from harness.kube import Kube
from harness.sightings import instant, watch_pods
from harness.story import Story

__all__ = [
    "Result",
    "StoryFailed",
    "bad_environment",
    "cold_cache",
    "first_deployment",
    "new_image",
]

NAME = "chat"


class StoryFailed(Exception):
    """A story ended in another way than it must."""


@dataclass(frozen=True, slots=True)
class Result:
    """One row of the summary."""

    story: str
    outcome: str
    seconds: float
    numbers: str


def _play(
    kube: Kube, title: str, change: dict[str, Any], expected: str, timeout: float
) -> tuple[Story, str, float]:
    """Patch the spec, follow the rollout to its end and return (story, message, seconds)."""
    story = Story(kube, NAME, say)
    story.skip_past()
    begin = time.monotonic()
    kube.patch("infd", NAME, {"spec": change})
    generation = kube.get("infd", NAME)["metadata"]["generation"]
    reason, message = story.until_ended(generation, timeout)
    _expect(title, reason, message, expected)
    return story, message, time.monotonic() - begin


def _expect(title: str, reason: str, message: str, expected: str) -> None:
    if reason != expected:
        raise StoryFailed(f"{title}: got {reason} ({message}), need {expected}")
    say(f"==> {reason}: {message}")


def first_deployment(kube: Kube) -> Result:
    """Story 1: apply, preflight, pods, one real token, serving."""
    say(f"kubectl apply -f {CHAT.name}")
    begin = time.monotonic()
    kube.apply(yaml.safe_load(CHAT.read_text()))
    story = Story(kube, NAME, say)
    reason, message = story.until_ended(1, timeout=600)
    _expect("first deployment", reason, message, "Promoted")
    ready = kube.get("infd", NAME)["status"]["readyReplicas"]
    return Result("1 first deployment", reason, time.monotonic() - begin, f"{ready} replicas ready")


def new_image(kube: Kube) -> Result:
    """Story 2: a good new image, promoted on latency and hit rate."""
    image = "localhost/rampway/server:demo-v2"
    say(f"kubectl patch infd {NAME}: engine.image = {image}")
    _, message, seconds = _play(kube, "new image", {"engine": {"image": image}}, "Promoted", 1200)
    return Result("2 new image", "Promoted", seconds, message)


def cold_cache(kube: Kube) -> Result:
    """Story 3: the prefix cache is switched off; rolled back on the hit rate."""
    good = kube.get("infd", NAME)["spec"]["engine"]["args"]
    say(f"kubectl patch infd {NAME}: engine.args += --prefix-cache off")
    bad = {"engine": {"args": [*good, "--prefix-cache", "off"]}}
    _, message, seconds = _play(kube, "cold cache", bad, "RolledBack", 1200)
    if "hit-rate" not in message:
        raise StoryFailed(f"cold cache: got {message!r}, need a rollback on hit-rate")
    _revert(kube, {"engine": {"args": good}})
    return Result("3 prefix cache off", "RolledBack", seconds, message)


def bad_environment(kube: Kube) -> Result:
    """Story 4: check_env finds a libstdc++ that is too old; rolled back before any request."""
    good = kube.get("infd", NAME)["spec"]["engine"]["image"]
    image = "localhost/rampway/server:demo-old-libstdcxx"
    say(f"kubectl patch infd {NAME}: engine.image = {image}")
    with watch_pods(kube, NAME) as sightings:
        change = {"engine": {"image": image}}
        _, message, seconds = _play(kube, "bad environment", change, "RolledBack", 180)
        ended = kube.get("infd", NAME)["status"]["history"][-1]
        seen = sightings.of(ended["hash"])
    if seen.engine_started or seen.was_routed or seen.check_failed_at is None:
        raise StoryFailed(f"bad environment: got {seen}, need a failed check and nothing else")
    decided = (instant(ended["endedAt"]) - seen.check_failed_at).total_seconds()
    say(
        f"==> from the check's end to the recorded rollback: {decided:.1f} s; the engine never started"
    )
    _revert(kube, {"engine": {"image": good}})
    return Result(
        "4 libstdc++ too old",
        "RolledBack",
        seconds,
        f"{message}; recorded {decided:.1f} s after the check ended",
    )


def _revert(kube: Kube, spec: dict[str, Any]) -> None:
    """Put the spec back to what serves; that starts no rollout."""
    say(f"kubectl patch infd {NAME}: back to what serves")
    kube.patch("infd", NAME, {"spec": spec})
    story = Story(kube, NAME, lambda _line: None)
    generation = kube.get("infd", NAME)["metadata"]["generation"]
    story.until(
        lambda seen: (
            seen["status"].get("observedGeneration", -1) >= generation
            and seen["status"].get("phase") == "Idle"
        ),
        "the revert",
        120,
    )
