"""The four user stories, played on a prepared cluster and told as they happen.

It knows what each story must lead to and raises StoryFailed if it does not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import yaml

from demo.stage import CHAT, say
from harness.kube import Kube
from harness.story import Story

__all__ = [
    "CandidateWatch",
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
    story = Story(kube, NAME, say)
    story.skip_past()
    begin = time.monotonic()
    kube.patch("infd", NAME, {"spec": {"engine": {"image": image}}})
    generation = kube.get("infd", NAME)["metadata"]["generation"]
    watched = CandidateWatch(kube, NAME)
    story.until(watched.look, "the rollback", timeout=180)
    reason, message = story.until_ended(generation, 120)
    _expect("bad environment", reason, message, "RolledBack")
    if watched.engine_started:
        raise StoryFailed("bad environment: the candidate's engine container started, and must not")
    if watched.was_routed:
        raise StoryFailed(
            "bad environment: a candidate pod was in the service's endpoints, and must not"
        )
    seconds = watched.seconds_to_rollback()
    say(
        f"==> from the check's end to the recorded rollback: {seconds:.1f} s; the engine never started"
    )
    _revert(kube, {"engine": {"image": good}})
    return Result(
        "4 libstdc++ too old",
        "RolledBack",
        time.monotonic() - begin,
        f"{message}; decided {seconds:.1f} s after the check ended",
    )


class CandidateWatch:
    """Looks at the candidate's pods, and at who gets traffic, while a rollout runs."""

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube = kube
        self._name = name
        self.engine_started = False
        self.was_routed = False
        self._finished: datetime | None = None
        self._decided: datetime | None = None

    def look(self, seen: dict[str, Any]) -> bool:
        """Note the pods; True once a rollback decision is recorded."""
        status = seen.get("status", {})
        candidate = (status.get("candidateRevision") or {}).get("hash", "")
        if candidate:
            selector = f"rampway.dev/name={self._name},rampway.dev/revision={candidate}"
            pods = self._kube.list("pod", selector)
            for pod in pods:
                self._note(pod["status"])
            routed = self._routed()
            self.was_routed |= any(pod["metadata"]["name"] in routed for pod in pods)
        if status.get("phase") == "RollingBack" or (
            self._finished and status.get("phase") == "Idle"
        ):
            self._decided = _instant(status["decisions"][-1]["at"])
            return True
        return False

    def _routed(self) -> set[str]:
        slices = self._kube.list("endpointslice", f"kubernetes.io/service-name={self._name}")
        ends = [end for one in slices for end in one.get("endpoints") or ()]
        return {end["targetRef"]["name"] for end in ends if "targetRef" in end}

    def _note(self, status: dict[str, Any]) -> None:
        for container in status.get("containerStatuses", ()):
            if (
                container.get("started")
                or container["state"].get("running")
                or container["restartCount"]
            ):
                self.engine_started = True
        for container in status.get("initContainerStatuses", ()):
            for ended in (
                container["state"].get("terminated"),
                container.get("lastState", {}).get("terminated"),
            ):
                if ended and ended.get("exitCode"):
                    finished = _instant(ended["finishedAt"])
                    self._finished = min(self._finished or finished, finished)

    def seconds_to_rollback(self) -> float:
        """Return the seconds from the first failed check's end to the recorded decision."""
        if self._finished is None or self._decided is None:
            raise StoryFailed("bad environment: no failed check and decision were seen")
        return (self._decided - self._finished).total_seconds()


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


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
