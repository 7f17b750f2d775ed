"""What is special about blue-green: the record of stable's figures, and the wait for it before the switch.

Everything else of the strategy is steps (`spec.BlueGreen.as_steps`) and an order of rotation (`rotation.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rampway_operator.core.observed import Window
from rampway_operator.core.record import note, pair_up, wanted_windows
from rampway_operator.core.state import State
from rampway_operator.core.tick import Tick

__all__ = ["missing_record", "references", "remember"]

COMPARED = 99
"""A weight at which comparisons are judged: the record stands in for the arm that has no traffic."""


def remember(tick: Tick) -> Tick:
    """The tick with the stable windows of this look in the record, while stable has all traffic."""
    rollout = tick.state.rollout
    if tick.spec.blue_green is None or rollout is None or not tick.observed.windows:
        return tick
    if rollout.verified_weight > 0 or _reached(tick):
        return tick
    noted = note(tick.spec, rollout.recorded, tick.observed.windows)
    state = replace(tick.state, rollout=replace(rollout, recorded=noted))
    return replace(tick, state=state)


def _reached(tick: Tick) -> bool:
    """Whether any candidate pod gets traffic of the alias Service."""
    return any(p.name in tick.observed.routed for p in tick.arms.candidate)


def missing_record(tick: Tick) -> str:
    """What the switch waits for, as a clause; empty when it need not wait.

    Not longer than an analysis may take: without traffic on stable there is nothing to record, and the
    bake then says itself that it cannot compare.
    """
    rollout = tick.rollout
    if tick.spec.blue_green is None or rollout.desired_weight > 0:
        return ""
    wanted, have = wanted_windows(tick.spec), len(rollout.recorded)
    if have >= wanted or tick.in_phase > tick.spec.analysis.max_duration:
        return ""
    return f"{have} of {wanted} windows of stable's figures, which the bake is compared with"


def references(tick: Tick) -> tuple[State, Sequence[Window], int]:
    """The state after the record was used, the windows with their references, and the weight to judge at.

    A preview has none: it gets other requests than stable. After the switch the record is the reference.
    """
    rollout, windows = tick.rollout, tick.observed.windows
    weight = rollout.verified_weight
    if tick.spec.blue_green is None:
        return tick.state, windows, weight
    if weight == 0:
        alone = [replace(w, baseline=None, stable=None) for w in windows]
        return tick.state, alone, weight
    paired, left = pair_up(rollout.recorded, windows)
    return replace(tick.state, rollout=replace(rollout, recorded=left)), paired, COMPARED
