"""Who served how much since the route was changed: adds readings up and compares shares with weights.

It does not know routes. Only gross errors contradict a weight: nothing served where many requests were
due, anything served where nothing should be, or a share outside an interval that is wide enough for
sessions that stay together. The clock only runs while requests come, or while all that came have stopped
with the change itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from rampway_operator.core.observed import Arm, Served

__all__ = ["GRACE", "Agreement", "Judgement", "add", "judge", "needed", "still_reached"]

GRACE: Final = timedelta(seconds=3)
"""Gateways take 1 to 2.5 s from an accepted route to moved traffic: what is served until then says nothing."""
ALPHA_Z: Final = 3.89
"""Standard errors of a two-sided interval at 1e-4."""
SPREAD: Final = {False: 2.0, True: 8.0}
"""How much more than single requests shares vary, without and with sessions that stay together.

Eight requests a session is a long chat; an interval for single requests would reject 29 % of correct splits.
"""
DUE: Final = {False: 20.0, True: 80.0}
"""So many requests must have been due before none counts as an error: its chance is below 1e-4 then."""
ROUNDING: Final = 0.005
"""Weights are whole percents, buckets 256ths."""
QUIET: Final = timedelta(seconds=3)
"""A pod that no new request reached for so long gets none."""
MOST_READINGS: Final = 600


class Agreement(Enum):
    """What counts say of a weight."""

    OPEN = "open"
    AGREES = "agrees"
    CONTRADICTS = "contradicts"


@dataclass(frozen=True, slots=True)
class Judgement:
    """The latest requests that are enough to judge by; `requests` of `needed` while they are not."""

    agreement: Agreement
    requests: int
    needed: int
    counts: Mapping[Arm, int] = field(default_factory=dict)

    def share(self, arm: Arm) -> float:
        """The arm's share of them in percent; 0 when there are none."""
        return 100.0 * self.counts.get(arm, 0) / self.requests if self.requests else 0.0


def add(
    served: Served,
    key: str,
    arrived: Mapping[str, tuple[Arm, float]],
    now: datetime,
) -> Served:
    """`served` with one more reading: `arrived` is pod UID to (arm, requests that ever reached it).

    Another `key` (what the route says) begins anew. A pod that is new counts from this reading on; a
    counter that falls far has begun again. One that falls a little was read between two updates.
    """
    if served.key != key or served.since is None:
        cut = bool(still_reached(served, now))
        served = Served(key=key, since=now, marks=served.marks, reached=served.reached, cut=cut)
    gained: dict[Arm, int] = {}
    marks, reached = dict(served.marks), dict(served.reached)
    for uid, (arm, value) in arrived.items():
        mark = marks.get(uid, value)
        if value < mark / 2:
            mark = 0.0
        if value > mark:
            gained[arm] = gained.get(arm, 0) + round(value - mark)
            reached[uid] = now
        marks[uid] = max(mark, value)
    elapsed = now - served.at if served.at is not None else timedelta(0)
    in_grace = served.since is not None and now <= served.since + GRACE
    readings = served.readings
    if served.since is not None and served.at is not None and served.at >= served.since + GRACE:
        readings = (*readings, gained)[-MOST_READINGS:]
    return Served(
        key=key,
        since=served.since,
        at=now,
        busy=served.busy + (elapsed if gained or served.cut else timedelta(0)),
        cut=(served.cut or bool(gained)) if in_grace else served.cut and not gained,
        readings=readings,
        marks={uid: mark for uid, mark in marks.items() if uid in arrived},
        reached={uid: at for uid, at in reached.items() if uid in arrived},
    )


def still_reached(served: Served, now: datetime) -> frozenset[str]:
    """UIDs of the pods that new requests came to lately, whatever the route says."""
    return frozenset(uid for uid, at in served.reached.items() if now - at <= QUIET)


def needed(weights: Mapping[Arm, int], before: int, *, sticky: bool) -> int:
    """Requests to judge `weights` (percent by arm) by, so that the candidate's weight `before` would show."""
    due, spread = DUE[sticky], SPREAD[sticky]
    positive = [weight / 100 for weight in weights.values() if weight > 0]
    enough = due / min(positive) if positive else due
    now, then = weights.get(Arm.CANDIDATE, 0) / 100, before / 100
    if then > 0 and now != then:
        width = ALPHA_Z * (_deviation(now) + _deviation(then))
        enough = max(enough, spread * (width / max(abs(now - then) - ROUNDING, ROUNDING)) ** 2)
    return math.ceil(enough)


def judge(served: Served, weights: Mapping[Arm, int], before: int, *, sticky: bool) -> Judgement:
    """What the latest requests say of `weights`."""
    enough, counts, total = needed(weights, before, sticky=sticky), dict[Arm, int](), 0
    for reading in reversed(served.readings):
        for arm, number in reading.items():
            counts[arm] = counts.get(arm, 0) + number
            total += number
        if total >= enough:
            agrees = all(
                _fits(counts.get(arm, 0), total, weights.get(arm, 0), sticky=sticky) for arm in Arm
            )
            verdict = Agreement.AGREES if agrees else Agreement.CONTRADICTS
            return Judgement(verdict, total, enough, counts)
    return Judgement(Agreement.OPEN, total, enough, counts)


def _deviation(share: float) -> float:
    return math.sqrt(share * (1 - share))


def _fits(count: int, total: int, weight: int, *, sticky: bool) -> bool:
    if weight <= 0 or count == 0:
        return weight <= 0 and count == 0
    share = weight / 100
    width = ALPHA_Z * _deviation(share) * math.sqrt(SPREAD[sticky] / total)
    return abs(count / total - share) <= width + ROUNDING + 1 / total
