"""Reads the pods' own counters by pod IP and turns two readings into one paired window.

It does not know what the numbers mean for the rollout. The last reading lives in memory only: after a
restart the first window is lost, and no window is ever counted twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client.parser import text_string_to_metric_families

from rampway_operator.cluster.pod_http import PodHttp, PodRequestFailed
from rampway_operator.core.observed import Arm, Pod, ScrapeStatus, Window
from rampway_operator.core.presets import PRESETS
from rampway_operator.core.scrape import (
    MetricsInvalid,
    PodCounters,
    Sample,
    counters_from_families,
    missing_for,
)
from rampway_operator.core.spec import Spec
from rampway_operator.core.windows import Dropped, pair

__all__ = ["Readings", "WindowMemory", "read_pods", "read_window"]

SCRAPE_SECONDS: Final = 5.0
ACCEPT: Final = "text/plain;version=0.0.4"
SLACK: Final = timedelta(milliseconds=200)
"""A look this much too early still counts as due: timers are not exact."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Readings:
    """The counters of several pods at about one instant."""

    at: datetime
    counters: Mapping[str, PodCounters]
    """By pod UID."""
    arms: Mapping[str, Arm]
    """The pods that took traffic then."""


@dataclass(slots=True)
class WindowMemory:
    """What must be remembered of one InferenceDeployment between two readings."""

    last: Readings | None = None
    offered: tuple[Window, ...] = ()
    """Windows given to a decision that is not yet known to be stored."""
    status: ScrapeStatus = field(default_factory=ScrapeStatus)
    next_at: datetime | None = None

    def stored(self) -> None:
        """The decision on the offered windows is stored, or may be: they never come again."""
        self.offered = ()


async def read_window(
    http: PodHttp, memory: WindowMemory, spec: Spec, pods: Iterable[Pod], now: datetime
) -> tuple[tuple[Window, ...], ScrapeStatus]:
    """Windows for the decision of this tick, and how the source did. Reads the pods when that is due.

    A window that was offered and surely not stored comes again, unchanged.
    """
    if memory.offered or (memory.next_at is not None and now + SLACK < memory.next_at):
        return memory.offered, memory.status
    memory.next_at = now + spec.analysis.interval
    live = [pod for pod in pods if pod.ready and pod.ip and not pod.deleting]
    arms = {pod.uid: pod.arm for pod in live if pod.in_rotation and pod.arm is not None}
    counters, faults = await read_pods(http, spec, live, now)
    missing = missing_for(spec.analysis.objectives, counters.values())
    broken = [fault for uid, fault in faults.items() if uid in arms]
    if broken:
        # The last reading stays: the next one may still be within two intervals of it.
        error = f"{len(broken)} of {len(arms)} pods gave no metrics: {broken[0]}"
        log.warning("metrics not read", error=error)
        memory.status = ScrapeStatus(error=error, missing_metrics=missing)
        return (), memory.status
    previous, memory.last = memory.last, Readings(now, counters, arms)
    dropped = ""
    if previous is not None and Arm.CANDIDATE in arms.values():
        window = pair(
            previous.counters, counters, arms, spec.analysis.interval, previous_arms=previous.arms
        )
        if isinstance(window, Dropped):
            dropped = window.reason
            log.info("window dropped", reason=dropped)
        else:
            memory.offered = (window,)
    memory.status = ScrapeStatus(dropped=dropped, missing_metrics=missing)
    return memory.offered, memory.status


async def read_pods(
    http: PodHttp, spec: Spec, pods: Iterable[Pod], at: datetime
) -> tuple[dict[str, PodCounters], dict[str, str]]:
    """The counters of each pod by UID, and by UID why a pod gave none."""
    counters: dict[str, PodCounters] = {}
    faults: dict[str, str] = {}

    async def read_one(pod: Pod) -> None:
        try:
            text = await http.get(
                pod.ip or "",
                spec.engine.scrape_port,
                spec.engine.metrics_path,
                seconds=SCRAPE_SECONDS,
                accept=ACCEPT,
            )
            # Off the loop: a large answer takes a second to parse.
            counters[pod.uid] = await asyncio.to_thread(_parsed, text, spec, pod.uid, at)
        except (PodRequestFailed, MetricsInvalid) as error:
            faults[pod.uid] = f"pod {pod.name}: {error}"

    await asyncio.gather(*(read_one(pod) for pod in pods))
    return counters, faults


def _parsed(text: bytes, spec: Spec, uid: str, at: datetime) -> PodCounters:
    try:
        samples: list[Sample] = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text.decode("utf-8"))
            for sample in family.samples
        ]
    except Exception as error:
        # The parser was made for honest exporters and fails on others in many ways.
        raise MetricsInvalid(
            f"metrics are not in the Prometheus text format: {error!r:.150}"
        ) from None
    return counters_from_families(PRESETS[spec.engine.type], samples, uid=uid, at=at)
