"""Turns two readings of the pods' counters into one paired window.

It does not know where counters come from nor what the numbers mean for the rollout. The last reading
lives in memory only: after a restart the first window is lost, and no window is ever counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog

from rampway_operator.cluster.metric_sources import MetricSources
from rampway_operator.core.observed import Arm, Pod, ScrapeStatus, Window
from rampway_operator.core.scrape import PodCounters, missing_for
from rampway_operator.core.spec import Spec
from rampway_operator.core.windows import Dropped, pair

__all__ = ["Readings", "WindowMemory", "read_window"]

SLACK: Final = timedelta(milliseconds=200)
"""A look this much too early still counts as due: timers are not exact."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Readings:
    """The counters of several pods at about one instant."""

    counters: Mapping[str, PodCounters]
    """By pod UID."""
    arms: Mapping[str, Arm]
    """The pods that took traffic then."""


@dataclass(slots=True)
class WindowMemory:
    """What must be remembered of one InferenceDeployment between two readings."""

    last: Readings | None = None
    arms: Mapping[str, Arm] = field(default_factory=dict)
    arms_since: datetime | None = None
    """Since when, at the latest, these pods take traffic."""
    offered: tuple[Window, ...] = ()
    """Windows given to a decision that is not yet known to be stored."""
    status: ScrapeStatus = field(default_factory=ScrapeStatus)
    next_at: datetime | None = None

    def stored(self) -> None:
        """The decision on the offered windows is stored, or may be: they never come again."""
        self.offered = ()


async def read_window(
    sources: MetricSources,
    memory: WindowMemory,
    spec: Spec,
    namespace: str,
    pods: Iterable[Pod],
    now: datetime,
) -> tuple[tuple[Window, ...], ScrapeStatus]:
    """Windows for the decision of this tick, and how the source did. Reads the pods when that is due.

    A window that was offered and surely not stored comes again, unchanged.
    """
    live = [pod for pod in pods if pod.ready and pod.ip and not pod.deleting]
    alone = spec.blue_green is not None
    arms = {
        pod.uid: pod.arm
        for pod in live
        # A blue-green candidate is tried by its preview Service, out of rotation.
        if pod.arm is not None and (pod.in_rotation or (alone and pod.arm is Arm.CANDIDATE))
    }
    if memory.arms_since is None or memory.arms != arms:
        memory.arms, memory.arms_since = arms, now
    if memory.offered or (memory.next_at is not None and now + SLACK < memory.next_at):
        return memory.offered, memory.status
    memory.next_at = now + spec.analysis.interval
    counters, faults = await sources.read(spec, namespace, live, now)
    missing = missing_for(spec.analysis.objectives, counters.values())
    broken = [fault for uid, fault in faults.items() if uid in arms]
    if broken:
        # The last reading stays: the next one may still be within two intervals of it.
        error = f"{len(broken)} of {len(arms)} pods gave no metrics: {broken[0]}"
        log.warning("metrics not read", error=error)
        memory.status = ScrapeStatus(error=error, missing_metrics=missing)
        return (), memory.status
    dropped = _next_window(memory, Readings(counters, arms), spec.analysis.interval, alone=alone)
    if dropped:
        log.info("window dropped", reason=dropped)
    memory.status = ScrapeStatus(dropped=dropped, missing_metrics=missing)
    return memory.offered, memory.status


def _next_window(memory: WindowMemory, new: Readings, interval: timedelta, *, alone: bool) -> str:
    """Offer the window that ends with this reading; why there is none, if that is to be told."""
    taking = [new.counters[uid] for uid in new.arms]
    if memory.arms_since is not None and any(c.at < memory.arms_since for c in taking):
        # A source that lags: samples from before the pods took their parts start no window.
        memory.last = None
        return "the newest samples are older than the last change of the pods that take traffic"
    previous = memory.last
    if previous is not None and _is_not_new(previous, new, interval):
        return ""
    memory.last = new
    if previous is None or not (alone or Arm.CANDIDATE in new.arms.values()):
        return ""
    window = pair(
        previous.counters,
        new.counters,
        new.arms,
        interval,
        previous_arms=previous.arms,
        alone=alone,
    )
    if isinstance(window, Dropped):
        return window.reason
    memory.offered = (window,)
    return ""


def _is_not_new(previous: Readings, new: Readings, interval: timedelta) -> bool:
    """Whether a source that scrapes less often than we look has yet to scrape one of these pods again."""
    return previous.arms == new.arms and any(
        new.counters[uid].at - previous.counters[uid].at < interval / 2
        for uid in new.arms
        if uid in previous.counters
    )
