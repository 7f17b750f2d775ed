"""Recorded windows of single pods: the form they have in a file, and how they add up to arms.

A recording is JSON lines. The first names the format and the bucket edges; each further one is a window:
its begin and end and, per pod, its arm and what it did. It does not know where the numbers came from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rampway_operator.core.observed import Arm, ArmWindow, Histogram, Window

__all__ = ["PodWindow", "RecordingInvalid", "as_lines", "as_window", "from_lines"]

FORMAT: Final = 1
_SCALARS: Final = {
    "requests": "requests",
    "errors": "errors",
    "promptTokens": "prompt_tokens",
    "cachedTokens": "cached_tokens",
}
_HISTOGRAMS: Final = {"ttft": "ttft", "interToken": "inter_token", "e2e": "e2e"}


class RecordingInvalid(ValueError):
    """A recording that cannot be read. The message names the line, what it had and what it needs."""


@dataclass(frozen=True, slots=True)
class PodWindow:
    """One window, pod by pod. Both maps have the same pods, by name."""

    started_at: datetime
    ended_at: datetime
    pods: Mapping[str, ArmWindow]
    arms: Mapping[str, Arm]


def as_window(recorded: PodWindow, arms: Mapping[str, Arm] | None = None) -> Window | None:
    """The window with pods summed by arm; None where no candidate took part.

    `arms` replaces the recorded ones: an A/A test deals equal pods to arms anew. Pods that it lacks are
    left out.
    """
    dealt = recorded.arms if arms is None else arms
    sides = {
        arm: _summed(members)
        for arm in Arm
        if (members := [w for name, w in recorded.pods.items() if dealt.get(name) is arm])
    }
    if Arm.CANDIDATE not in sides:
        return None
    return Window(
        recorded.started_at,
        recorded.ended_at,
        sides[Arm.CANDIDATE],
        sides.get(Arm.BASELINE),
        sides.get(Arm.STABLE),
    )


def _summed(pods: Sequence[ArmWindow]) -> ArmWindow:
    """None stays None: what one pod does not count is not known of the arm."""

    def total(of: Callable[[ArmWindow], float | None]) -> float | None:
        values = [of(pod) for pod in pods]
        return None if None in values else math.fsum(v for v in values if v is not None)

    def merged(of: Callable[[ArmWindow], Histogram | None]) -> Histogram | None:
        found = [h for pod in pods if (h := of(pod)) is not None]
        if len(found) != len(pods) or len({h.edges for h in found}) != 1:
            return None
        columns = zip(*(h.counts for h in found), strict=True)
        return Histogram(found[0].edges, tuple(math.fsum(column) for column in columns))

    return ArmWindow(
        pods=len(pods),
        requests=total(lambda pod: pod.requests) or 0.0,
        errors=total(lambda pod: pod.errors),
        prompt_tokens=total(lambda pod: pod.prompt_tokens),
        cached_tokens=total(lambda pod: pod.cached_tokens),
        ttft=merged(lambda pod: pod.ttft),
        inter_token=merged(lambda pod: pod.inter_token),
        e2e=merged(lambda pod: pod.e2e),
    )


def as_lines(windows: Sequence[PodWindow]) -> Iterable[str]:
    """The recording, line by line without line ends. Raises RecordingInvalid when pods' buckets differ."""
    edges: dict[str, tuple[float, ...]] = {}
    for window in windows:
        for name, pod in window.pods.items():
            for key, attribute in _HISTOGRAMS.items():
                histogram = getattr(pod, attribute)
                if (
                    histogram is not None
                    and edges.setdefault(key, histogram.edges) != histogram.edges
                ):
                    raise RecordingInvalid(
                        f"pod {name} has other {key} buckets than the pods before it: record them apart"
                    )
    yield json.dumps({"rampwayRecording": FORMAT, "edges": {k: v[:-1] for k, v in edges.items()}})
    for window in windows:
        pods = {name: _pod_data(pod, window.arms[name]) for name, pod in window.pods.items()}
        times = {"start": window.started_at.timestamp(), "end": window.ended_at.timestamp()}
        yield json.dumps({**times, "pods": pods})


def _pod_data(pod: ArmWindow, arm: Arm) -> dict[str, Any]:
    scalars = {key: getattr(pod, attribute) for key, attribute in _SCALARS.items()}
    counts = {
        key: list(getattr(pod, attribute).counts)
        for key, attribute in _HISTOGRAMS.items()
        if getattr(pod, attribute) is not None
    }
    return {"arm": arm.value, **{k: v for k, v in scalars.items() if v is not None}, **counts}


def from_lines(lines: Iterable[str]) -> tuple[PodWindow, ...]:
    """The windows of a recording, in its order. Raises RecordingInvalid with the number of the bad line."""
    windows: list[PodWindow] = []
    edges: dict[str, tuple[float, ...]] | None = None
    for number, line in enumerate(lines, start=1):
        try:
            data = json.loads(line)
            if edges is None:
                edges = _edges(data)
            else:
                windows.append(_window(data, edges))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise RecordingInvalid(f"line {number} of the recording: {error!r:.150}") from error
    if not windows:
        raise RecordingInvalid(
            "the recording has no windows: need its first line and one window more"
        )
    return tuple(windows)


def _edges(data: Any) -> dict[str, tuple[float, ...]]:
    if data["rampwayRecording"] != FORMAT:
        raise ValueError(f"format: got {data['rampwayRecording']!r}, need {FORMAT}")
    return {
        key: (*(_count(edge) for edge in data["edges"][key]), math.inf)
        for key in _HISTOGRAMS
        if key in data["edges"]
    }


def _window(data: Any, edges: Mapping[str, tuple[float, ...]]) -> PodWindow:
    return PodWindow(
        datetime.fromtimestamp(data["start"], UTC),
        datetime.fromtimestamp(data["end"], UTC),
        {name: _pod(pod, edges) for name, pod in data["pods"].items()},
        {name: Arm(pod["arm"]) for name, pod in data["pods"].items()},
    )


def _pod(data: Any, edges: Mapping[str, tuple[float, ...]]) -> ArmWindow:
    def histogram(key: str) -> Histogram | None:
        if key not in data:
            return None
        counts = tuple(_count(value) for value in data[key])
        if len(counts) != len(edges[key]):
            raise ValueError(f"{key}: got {len(counts)} counts, need {len(edges[key])}")
        return Histogram(edges[key], counts)

    def scalar(key: str) -> float | None:
        return _count(data[key]) if key in data else None

    return ArmWindow(
        pods=1,
        requests=_count(data["requests"]),
        errors=scalar("errors"),
        prompt_tokens=scalar("promptTokens"),
        cached_tokens=scalar("cachedTokens"),
        ttft=histogram("ttft"),
        inter_token=histogram("interToken"),
        e2e=histogram("e2e"),
    )


def _count(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"got {value!r}, need a number")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"got {value!r}, need a finite number >= 0")
    return float(value)
