"""Any sequence of edits, commands, faults and crashes ends well, and no promise is broken on the way."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from world_builders import Behaviour, World, world

from rampway_operator.core import names
from rampway_operator.core.state import Phase

BEHAVIOURS = {
    "slow": Behaviour(ttft=1.8),
    "errors": Behaviour(error_rate=0.05),
    "cold": Behaviour(hit_rate=0.4),
    "crash": Behaviour(crashes=True),
    "bad-image": Behaviour(check_exit=10),
    "bad-node": Behaviour(bad_nodes=frozenset({"n1", "n2"})),
    "no-check": Behaviour(check_exit=12),
    "no-token": Behaviour(smoke_fails=True),
}
GOOD = ("v1", "v2", "v3")
VERBS = ("promote", "promote-full", "abort", "retry")


def some_world(seed: int) -> World:
    """A world of any size, surge, reference arm and warm-up, with its first revision deployed."""
    dice = random.Random(seed)
    replicas = dice.choice([1, 2, 3, 4, 8])
    surge = dice.choice(["25%", 1, 2, "50%", 0])
    canary = {"bake": "60s", "scaleDownDelay": "5s", "maxSurge": surge}
    if surge == 0:
        replicas, canary["maxUnavailable"] = max(2, replicas), dice.choice([1, "50%"])
    analysis: dict[str, object] = {"interval": "15s", "maxDuration": "15m"}
    if dice.random() < 0.3:
        canary["baseline"] = {"enabled": False}
        analysis["objectives"] = [
            {"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.005"}},
            {
                "name": "ttft",
                "metric": "TTFT",
                "tail": "0.90",
                "comparison": {"against": "Stable", "maxRegression": "0.25"},
            },
        ]
    spec = {
        "replicas": replicas,
        "progressDeadline": "10m",
        "strategy": {"canary": canary},
        "analysis": analysis,
    }
    if dice.random() < 0.5:
        spec["warmup"] = {"source": {"promptSet": {"configMapName": "warm"}}}
    w = world(seed, **spec)
    w.behaviours = dict(BEHAVIOURS)
    return w.deploy()


def calm(w: World, seed: int) -> None:
    """No more faults: the object settles, with a person's help where it waits for one, and stays so."""
    dice = random.Random(seed)
    w.frozen_routes, w.scrape_error, w.command = False, "", None
    w.edit(lambda spec: spec.update(paused=False))
    for nonce in range(12):
        try:
            w.until_settled(4000)
            break
        except AssertionError as error:
            if "not reached" not in str(error) or w.phase is not Phase.PAUSED:
                raise
            w.give(dice.choice(["promote", "promote", "abort"]), f"calm-{nonce}")
    assert w.state.rollout is None, w.story()
    w.advance(1)
    w.tick()  # what the last write changed is an event that wakes the operator
    writes = w.writes
    for _ in range(5):
        w.tick()
        w.advance(60)
    assert w.writes == writes, "a settled object is not written"
    if w.state.stable is not None and w.state.stable.hash == w.spec_hash:
        assert len(w.serving()) == w.spec["replicas"]
    assert {p.hash for p in w.serving()} <= {w.state.stable.hash if w.state.stable else ""}


class Rollouts(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 10_000))
    def deploy(self, seed: int) -> None:
        self.seed = seed
        self.world = some_world(seed)

    @rule(image=st.sampled_from([*GOOD, *BEHAVIOURS]))
    def edit_the_image(self, image: str) -> None:
        self.world.set_image(image)

    @rule(replicas=st.sampled_from([2, 3, 4, 6]))
    def resize(self, replicas: int) -> None:
        if replicas > self.world.spec["replicas"]:
            self.world.pristine = False  # pods to come are missing until they are there
        self.world.edit(lambda spec: spec.update(replicas=replicas))

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.world.edit(lambda spec: spec.update(paused=paused))

    @rule(steps=st.sampled_from([[10, 50], [50, 100], [25], [100]]))
    def edit_the_steps(self, steps: list[int]) -> None:
        made: list[dict[str, object]] = []
        for weight in steps:
            made += [{"setWeight": weight}, *([{"analysis": {}}] if weight < 100 else [])]
        self.world.edit(lambda spec: spec["strategy"]["canary"].update(steps=made))

    @rule(verb=st.sampled_from(VERBS), nonce=st.integers(0, 999))
    def command(self, verb: str, nonce: int) -> None:
        self.world.give(verb, str(nonce))

    @rule(arm=st.sampled_from(["stable", "candidate", "baseline"]))
    def kill_a_pod(self, arm: str) -> None:
        pods = [p for p in self.world.live() if p.labels.get(names.LABEL_ARM) == arm]
        if pods:
            self.world.pristine = False
            self.world.kill(pods[0])

    @rule(frozen=st.booleans())
    def freeze_the_endpoints(self, frozen: bool) -> None:
        self.world.pristine = False
        self.world.frozen_routes = frozen

    @rule(error=st.sampled_from(["", "connection refused"]))
    def break_the_metrics(self, error: str) -> None:
        self.world.scrape_error = error

    @rule(requests=st.sampled_from([0, 20, 400]))
    def change_the_traffic(self, requests: int) -> None:
        self.world.requests_per_window = requests

    @precondition(lambda self: self.world.state.rollout is not None)
    @rule()
    def lose_the_status(self) -> None:
        self.world.pristine = False
        self.world.status = {"observedGeneration": -1}

    @rule(after=st.integers(1, 12), before=st.booleans())
    def crash_soon(self, after: int, before: bool) -> None:
        self.world.crash_at = self.world.writes + after
        self.world.crash_before = before

    @rule(seconds=st.sampled_from([3, 20, 60, 200, 600]))
    def let_time_pass(self, seconds: int) -> None:
        self.world.run(seconds)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.requests_per_window = 400
            calm(self.world, self.seed)


Rollouts.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
TestRollouts = Rollouts.TestCase


@pytest.mark.slow
def test_any_sequence_of_many_more_ends_well() -> None:
    more = settings(Rollouts.TestCase.settings, max_examples=500, derandomize=False)
    run_state_machine_as_test(Rollouts, settings=more)
