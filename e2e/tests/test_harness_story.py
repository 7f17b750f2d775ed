"""The story-teller: it tells each thing once, breaks long silences and outlives a watch that ends."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from harness import story as told
from harness.kube import Watched
from harness.story import Story


class Cluster:
    """Gives each watch the next list of versions; a list ends its watch."""

    def __init__(self, *watches: list[dict[str, Any]]) -> None:
        self._watches = list(watches)

    @contextlib.contextmanager
    def watch(self, _kind: str, _name: str) -> Iterator[Watched]:
        seen = Watched()
        versions: queue.Queue[Any] = queue.Queue()
        for version in self._watches.pop(0):
            versions.put(version)
        versions.put(None)
        seen._versions = versions
        yield seen


def version(phase: str, **status: Any) -> dict[str, Any]:
    return {"status": {"phase": phase, "waitingFor": "pods", **status}}


def story(cluster: Cluster, lines: list[str]) -> Story:
    return Story(cluster, "chat", lines.append)  # type: ignore[arg-type] # stands in for Kube


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told.time, "sleep", lambda _seconds: None)


def test_given_a_watch_that_ends_when_followed_then_another_is_begun_and_nothing_is_told_twice() -> (
    None
):
    lines: list[str] = []
    decided = {"at": "t", "reason": "Warm", "message": "no pod is cold"}
    cluster = Cluster(
        [version("Warming", decisions=[decided])],
        [version("Warming", decisions=[decided]), version("Idle", decisions=[decided])],
    )

    last = story(cluster, lines).until(
        lambda seen: seen["status"]["phase"] == "Idle", "the end", timeout=60
    )

    assert last["status"]["phase"] == "Idle"
    assert lines == ["Warming", "  decided Warm: no pod is cold", "Idle"]


def test_given_no_news_for_long_when_followed_then_it_tells_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(told, "QUIET_SECONDS", 0.0)
    lines: list[str] = []

    story(Cluster([version("Warming"), version("Idle")]), lines).until(
        lambda seen: seen["status"]["phase"] == "Idle", "the end", timeout=60
    )

    assert lines == ["Warming", "  waits for pods", "Idle", "  waits for pods"]


def test_given_a_timeout_when_followed_then_it_says_what_did_not_come() -> None:
    with pytest.raises(TimeoutError, match="the end: not within 0 s"):
        story(Cluster([version("Warming")]), []).until(lambda _seen: False, "the end", timeout=0)
