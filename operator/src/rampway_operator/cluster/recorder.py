"""Reads a past span of several pods from a Prometheus and cuts it into windows.

It does not know what the windows will be used for.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from rampway_operator.cluster.prometheus import Prometheus
from rampway_operator.core.observed import Arm, ArmWindow
from rampway_operator.core.presets import PRESETS
from rampway_operator.core.promql import all_scrapes, query
from rampway_operator.core.recording import PodWindow
from rampway_operator.core.scrape import PodCounters, counters_from_families
from rampway_operator.core.spec import EngineType
from rampway_operator.core.windows import gained

__all__ = ["record"]

CHUNK: Final = 60
"""Intervals that one query asks for: a pod's answer stays within the limit of an answer's size."""


async def record(
    source: Prometheus,
    engine: EngineType,
    namespace: str,
    arms: Mapping[str, Arm],
    *,
    end: datetime,
    length: timedelta,
    interval: timedelta,
) -> tuple[PodWindow, ...]:
    """The windows of these pods (arms by pod name) in the `length` before `end`, oldest first.

    A window in which a pod restarted, was not scraped or lost a series is left out, as it is in a rollout.
    Raises PrometheusFailed or MetricsInvalid when the source's answer cannot be used.
    """
    readings = {
        pod: await _readings(
            source, engine, namespace, pod, end=end, length=length, interval=interval
        )
        for pod in sorted(arms)
    }
    windows = []
    ticks = length // interval
    for number in range(ticks):
        begin = end - (ticks - number) * interval
        pods = {
            pod: window
            for pod, counters in readings.items()
            if (window := _between(counters, begin, begin + interval, interval)) is not None
        }
        if len(pods) == len(arms):
            windows.append(PodWindow(begin, begin + interval, pods, dict(arms)))
    return tuple(windows)


async def _readings(
    source: Prometheus,
    engine: EngineType,
    namespace: str,
    pod: str,
    *,
    end: datetime,
    length: timedelta,
    interval: timedelta,
) -> list[PodCounters]:
    preset, labels = PRESETS[engine], source.settings.labels
    found: dict[datetime, PodCounters] = {}
    at = end
    while at > end - length - interval:
        promql = query(preset, labels, namespace, pod, interval, CHUNK)
        answer = await source.query(promql, at.timestamp())
        for scrape in await asyncio.to_thread(all_scrapes, answer, labels, pod):
            found[scrape.at] = counters_from_families(preset, scrape.samples, uid=pod, at=scrape.at)
        at -= CHUNK * interval
    return [found[instant] for instant in sorted(found)]


def _between(
    counters: list[PodCounters], begin: datetime, end: datetime, interval: timedelta
) -> ArmWindow | None:
    """What the pod did between its newest scrapes at `begin` and at `end`; None when that is not known."""
    times = [reading.at for reading in counters]
    first, last = bisect_right(times, begin) - 1, bisect_right(times, end) - 1
    if first < 0 or end - times[last] > interval:
        return None
    window = gained(counters[first], counters[last], interval)
    return window if isinstance(window, ArmWindow) else None
