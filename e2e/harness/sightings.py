"""Watches a rollout's pods and endpoints and says what a candidate got: nothing is missed in between.

It does not know what a candidate should get.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.kube import Kube, Watched

__all__ = ["Sightings", "instant", "watch_pods"]


@dataclass(slots=True)
class Sightings:
    """Everything that was seen of one object's pods since the watch began."""

    pods: Watched
    slices: Watched

    def of(self, revision: str) -> CandidateSeen:
        """Return what the pods of one revision got; takes what was seen, so call it once."""
        seen = CandidateSeen()
        names = set()
        for pod in self.pods.drain():
            if pod["metadata"]["labels"].get("rampway.dev/revision") == revision:
                names.add(pod["metadata"]["name"])
                seen.note(pod["status"])
        for one in self.slices.drain():
            ends = one.get("endpoints") or ()
            seen.was_routed |= any((e.get("targetRef") or {}).get("name") in names for e in ends)
        seen.pods = len(names)
        return seen


@dataclass(slots=True)
class CandidateSeen:
    """What the pods of one revision got."""

    pods: int = 0
    engine_started: bool = False
    was_routed: bool = False
    check_failed_at: datetime | None = None
    """When the first failed check_env ended."""

    def note(self, status: dict[str, Any]) -> None:
        """Take in one version of a pod's status."""
        for container in status.get("containerStatuses", ()):
            state = container.get("state", {})
            if "running" in state or container.get("started") or container.get("restartCount"):
                self.engine_started = True
        for container in status.get("initContainerStatuses", ()):
            for state in (container.get("state", {}), container.get("lastState", {})):
                ended = state.get("terminated")
                if ended and ended.get("exitCode"):
                    at = instant(ended["finishedAt"])
                    self.check_failed_at = min(self.check_failed_at or at, at)


@contextlib.contextmanager
def watch_pods(kube: Kube, name: str) -> Iterator[Sightings]:
    """Watch the pods of an InferenceDeployment and the endpoints of its service."""
    with (
        kube.watch("pod", "-l", f"rampway.dev/name={name}") as pods,
        kube.watch("endpointslice", "-l", f"kubernetes.io/service-name={name}") as slices,
    ):
        yield Sightings(pods, slices)


def instant(text: str) -> datetime:
    """Return the instant of an RFC 3339 time as Kubernetes writes it."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
