"""Decides what an InferenceDeployment does next, from what was read in this tick alone.

It knows the order in which questions are asked: what a person commands, what the spec now says, what is
not safe, and only then what the phase waits for. It does not know how a phase is carried out (`plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Observed
from rampway_operator.core.rebuild import needs_rebuild, rebuild
from rampway_operator.core.rules_blue_green import remember
from rampway_operator.core.rules_change import on_spec_change
from rampway_operator.core.rules_command import note_command, obey
from rampway_operator.core.rules_end import on_draining, on_rolling_back
from rampway_operator.core.rules_pause import on_paused, on_spec_paused
from rampway_operator.core.rules_safety import on_danger, on_stable_down
from rampway_operator.core.rules_start import (
    on_idle,
    on_preflight,
    on_provisioning,
)
from rampway_operator.core.rules_traffic import on_analyzing, on_baking, on_shifting
from rampway_operator.core.rules_warming import on_warming
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase
from rampway_operator.core.tick import Tick, look

__all__ = ["decide"]

BY_PHASE: Final[dict[Phase, Callable[[Tick], Move]]] = {
    Phase.IDLE: on_idle,
    Phase.PREFLIGHT: on_preflight,
    Phase.PROVISIONING: on_provisioning,
    Phase.WARMING: on_warming,
    Phase.SHIFTING: on_shifting,
    Phase.ANALYZING: on_analyzing,
    Phase.PAUSED: on_paused,
    Phase.BAKING: on_baking,
    Phase.DRAINING: on_draining,
    Phase.ROLLING_BACK: on_rolling_back,
}

FIRST: Final[tuple[Callable[[Tick], Move | None], ...]] = (
    on_spec_change,
    on_danger,
    on_spec_paused,
    on_stable_down,
)
"""Asked in this order before the phase, while a rollout is on trial."""

ON_TRIAL: Final = frozenset(Phase) - {Phase.IDLE, Phase.DRAINING, Phase.ROLLING_BACK}


def decide(spec: Spec, observed: Observed, *, now: datetime) -> Move:
    """The next move; pure, total, and a function of its arguments alone.

    `now` is an aware UTC instant. A clock that jumps back only lengthens waits.
    """
    if needs_rebuild(observed):
        return rebuild(spec, observed, now)
    tick, verdict = note_command(remember(look(spec, observed, observed.state, now)))
    move = obey(tick, verdict) if verdict is not None else None
    if move is not None:
        return move
    if tick.state.phase in ON_TRIAL:
        for rule in FIRST:
            move = rule(tick)
            if move is not None:
                return move
    return BY_PHASE[tick.state.phase](tick)
