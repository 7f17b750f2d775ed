"""From any moment of a rollout, whatever happens next: the promises of architecture.md hold at every write.

Moments are snapshots of whole rollouts, taken once; each example goes on from one of them with faults of its
own. Long sequences are for `test_core_machine.py`; `make test-full` takes a million steps here.
"""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from world_builders import Behaviour, World, world

from rampway_operator.core.decide import decide
from rampway_operator.core.parse import InvalidSpec
from rampway_operator.core.plan import plan
from rampway_operator.core.state import Phase

BLUE_GREEN = {"blueGreen": {"bake": "2m", "scaleDownDelay": "20s"}}
CANARY = {"canary": {"bake": "60s", "scaleDownDelay": "5s"}}
IN_PLACE = {"canary": {"maxSurge": 0, "maxUnavailable": 1, "bake": "60s", "scaleDownDelay": "5s"}}
BEHAVIOURS = {
    "wrong": Behaviour(error_rate=0.05),
    "crash": Behaviour(crashes=True),
    "bad": Behaviour(check_exit=10),
    "infra": Behaviour(check_exit=12),
}
MOMENTS_A_ROLLOUT = 24
ANALYSIS = {
    "interval": "15s",
    "objectives": [{"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.005"}}],
}
"""One cheap objective: what is judged is not what is tested here."""


@cache
def moments() -> list[World]:
    """Snapshots of good and bad rollouts under each strategy, spread over all their phases."""
    found: list[World] = []
    for strategy, images in (
        (CANARY, ("v2", "bad")),
        (BLUE_GREEN, ("v2", "wrong")),
        (IN_PLACE, ("v2",)),
    ):
        for image in images:
            w = world(
                strategy=copy.deepcopy(strategy), replicas=2, analysis=copy.deepcopy(ANALYSIS)
            )
            w.behaviours = dict(BEHAVIOURS)
            w.deploy()
            w.set_image(image)
            seen: dict[tuple[Phase, int, int], World] = {}

            def watch(w: World, seen: dict[tuple[Phase, int, int], World] = seen) -> bool:
                rollout = w.state.rollout
                key = (w.phase, rollout.step_index if rollout else 0, len(w.live()))
                if key not in seen and len(seen) < MOMENTS_A_ROLLOUT:
                    seen[key] = copy.deepcopy(w)
                return w.phase is Phase.IDLE and len(w.state.history) == 2

            w.run(7200, watch)
            found += seen.values()
    return found


def _strategy(w: World, dice: random.Random) -> None:
    kind = copy.deepcopy(dice.choice((CANARY, BLUE_GREEN)))
    if "maxUnavailable" in w.spec["strategy"].get("canary", {}):
        w.pristine = False  # more pods have to serve than before, and some may be leaving just now
    w.edit(lambda spec: spec.update(strategy=kind))


def _kill(w: World, dice: random.Random) -> None:
    if pods := w.live():
        w.pristine = False
        w.kill(dice.choice(pods))


def _lose_status(w: World, dice: random.Random) -> None:
    w.pristine = False
    w.status = {"observedGeneration": -1}


def _jump(w: World, dice: random.Random) -> None:
    """The operator's clock is set: forwards or back."""
    w.skew = timedelta(seconds=dice.choice((-7200, -60, 0, 60, 7200)))


def _crash(w: World, dice: random.Random) -> None:
    w.crash_at, w.crash_before = w.writes + dice.randint(1, 4), dice.random() < 0.5


def _replicas(w: World, dice: random.Random) -> None:
    wanted = dice.choice((2, 3, 5))
    w.pristine = False
    w.edit(lambda spec: spec.update(replicas=wanted))


def _repeat_a_read(w: World, dice: random.Random) -> None:
    """A look at what was read before: it decides the same, and what it does again is refused or harmless."""
    stale, now = w.observe(), w.clock
    try:
        spec = w.parsed
    except InvalidSpec:
        return
    w.tick()
    move = decide(spec, stale, now=now)
    assert move == decide(spec, stale, now=now)
    if move.transition:
        return  # its status carries an old resourceVersion: the API server refuses it
    for action in plan(spec, stale, now=now):
        try:
            w.act(spec, action)
        except (AssertionError, KeyError) as error:
            if "conflict" not in str(error) and not isinstance(error, KeyError):
                raise
            break
        w.check()


def _image(w: World, dice: random.Random) -> None:
    w.set_image(dice.choice(("v1", "v2", "v3", "wrong", "crash", "bad", "infra")))


def _command(w: World, dice: random.Random) -> None:
    w.give(dice.choice(("promote", "promote-full", "abort", "retry")), str(dice.randint(0, 99)))


def _pause(w: World, dice: random.Random) -> None:
    paused = dice.random() < 0.7
    w.edit(lambda spec: spec.update(paused=paused))


def _metrics(w: World, dice: random.Random) -> None:
    w.scrape_error = dice.choice(("", "connection refused"))


EVENTS: tuple[Callable[[World, random.Random], None], ...] = (
    _image, _image, _command, _command, _strategy, _kill, _lose_status, _jump, _crash, _crash,
    _replicas, _repeat_a_read, _pause, _metrics,
)  # fmt: skip


def go_on(seed: int, looks: int) -> int:
    """One example; returns the looks that it took."""
    dice = random.Random(seed)
    w = copy.deepcopy(dice.choice(moments()))
    taken = 0
    for _ in range(looks):
        if dice.random() < 0.6:
            dice.choice(EVENTS)(w, dice)
        pause = w.tick()
        taken += 1
        if pause > 0:
            w.advance(dice.choice((1.0, 3.0, min(pause, 20.0))))
    return taken


@settings(
    max_examples=2000, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(st.integers(0, 2**32))
def test_given_any_moment_when_anything_happens_then_every_promise_holds(seed: int) -> None:
    go_on(seed, looks=4)


@pytest.mark.slow
def test_given_a_million_steps_when_anything_happens_then_every_promise_holds() -> None:
    """RAMPWAY_TRANSITIONS sets another number."""
    wanted, seed, taken = int(os.environ.get("RAMPWAY_TRANSITIONS", "1000000")), 0, 0
    while taken < wanted:
        seed += 1
        taken += go_on(seed, looks=40)
