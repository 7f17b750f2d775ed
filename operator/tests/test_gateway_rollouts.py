"""Rollouts through a gateway: in every phase, and with gateways that do not do what they are told."""

from __future__ import annotations

import pytest
from gateway_world import GATEWAY, GatewayWorld, gateway_world
from world_cluster import Behaviour

from rampway_operator.core.observed import Arm
from rampway_operator.core.plan import plan
from rampway_operator.core.routed import weights
from rampway_operator.core.state import EndReason, Phase


def deployed(**changes: object) -> GatewayWorld:
    world = gateway_world(**changes)
    world.deploy()
    return world


def test_given_a_new_image_when_the_gateway_obeys_then_it_is_promoted_without_a_lost_request() -> (
    None
):
    world = deployed()
    world.set_image("v2")
    seen = set[int]()

    def note(w: object) -> bool:
        seen.add(weights(world.observe()).get(Arm.CANDIDATE, 0))
        return world.phase is Phase.IDLE and world.state.history[-1].image == "v2"

    world.run(7200, note)
    assert world.state.history[-1].outcome is EndReason.PROMOTED, world.story()
    assert {0, 5, 25, 50, 100} >= seen >= {5, 25, 50, 100}
    assert world.lost == 0


def test_given_a_rollout_when_it_has_ended_then_the_route_is_not_written_any_more() -> None:
    world = deployed()
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.IDLE and world.state.history[-1].image == "v2")
    world.until_settled()
    before = world.route_writes
    world.run(600)
    assert world.route_writes == before
    assert plan(world.parsed, world.observe(), now=world.now) == ()


@pytest.mark.parametrize(
    "fault",
    [
        {"deaf": True},
        {"dropped": Arm.CANDIDATE},
        {"dropped": Arm.STABLE},
        {"refused": "NoMatchingParent"},
    ],
    ids=lambda fault: "-".join(f"{k}-{v}" for k, v in fault.items()),
)
def test_given_a_gateway_at_fault_when_a_weight_is_asked_then_no_step_advances(
    fault: dict[str, object],
) -> None:
    world = deployed()
    for name, value in fault.items():
        setattr(world, name, value)
    world.set_image("v2")
    world.until_phase(Phase.PAUSED)
    assert world.state.rollout is not None
    assert world.state.rollout.paused_reason == "TrafficUnverified"
    assert Phase.ANALYZING not in world.phases
    told = world.state.decisions[-1].message
    assert "asked 5 %, applied 5 %" in told, told
    world.run(30)
    assert weights(world.observe()).get(Arm.CANDIDATE, 0) == 0


def test_given_a_gateway_that_lags_30_s_when_a_weight_is_asked_then_the_step_waits_for_it() -> None:
    world = deployed()
    world.run(60)
    world.lag_s = 30.0
    world.set_image("v2")
    world.until_phase(Phase.SHIFTING)
    world.run(600, lambda _: weights(world.observe()).get(Arm.CANDIDATE, 0) == 5)
    applied = world.now
    world.until_phase(Phase.ANALYZING)
    assert (world.now - applied).total_seconds() >= 30


def test_given_no_traffic_when_a_weight_is_asked_then_the_clock_stands_still() -> None:
    world = deployed()
    world.set_image("v2")
    world.per_second = 0.0
    world.run(3600)
    assert world.phase is Phase.PROVISIONING, world.story()
    assert "no requests come" in world.status["waitingFor"]
    world.per_second = 50.0
    world.until_phase(Phase.ANALYZING, 120)


def test_given_a_gateway_at_fault_later_when_25_percent_are_asked_then_5_come_back() -> None:
    world = deployed()
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.ANALYZING)
    world.plane[:] = world.plane[-1:]
    world.deaf = True
    world.until_phase(Phase.PAUSED)
    world.run(30)
    assert weights(world.observe()).get(Arm.CANDIDATE, 0) == 5
    assert "asked 25 %, applied 25 %" in str(world.state.decisions)


def test_given_a_worse_candidate_when_it_is_rolled_back_then_no_request_is_lost() -> None:
    world = deployed()
    world.behaviours["v2"] = Behaviour(ttft=3.0)
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.IDLE and len(world.state.history) == 2)
    assert world.state.history[-1].outcome is EndReason.ANALYSIS_FAILED, world.story()
    assert world.lost == 0
    assert weights(world.observe()) == {Arm.STABLE: 100}


def test_given_traffic_when_every_candidate_pod_dies_then_its_weight_goes_to_0_at_once() -> None:
    world = deployed()
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.ANALYZING)
    world.pristine = False
    for pod in world.live(world.image_hash("v2")):
        world.kill(pod)
    world.run(3)
    assert world.route is not None
    assert weights(world.observe()).get(Arm.CANDIDATE, 0) == 0


def test_given_a_strangers_route_when_the_name_is_taken_then_it_is_never_applied() -> None:
    world = gateway_world()
    world.foreign = ("HTTPRoute/chat",)
    world.run(300)
    assert world.route is None
    assert world.condition("SpecValid")["reason"] == "NameConflict"


def test_given_a_provider_change_when_back_to_service_then_the_route_is_removed() -> None:
    world = deployed()
    world.edit(lambda spec: spec.update(traffic={"provider": {"service": {}}}))
    assert world.observe().state.route_made


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_given_a_crash_at_every_write_when_a_canary_runs_then_it_ends_the_same(
    before: bool,
) -> None:
    whole = deployed()
    first = whole.writes
    whole.set_image("v2")
    whole.run(7200, lambda _: whole.phase is Phase.IDLE and len(whole.state.history) == 2)
    for at in range(first + 1, whole.writes + 1):
        world = deployed()
        world.crash_at, world.crash_before = at, before
        world.set_image("v2")
        world.run(7200, lambda _, w=world: w.phase is Phase.IDLE and len(w.state.history) == 2)
        assert world.state.history[-1].outcome is EndReason.PROMOTED, world.story()
        assert world.lost == 0


def test_given_affinity_when_weights_grow_then_the_route_has_a_rule_an_arm() -> None:
    traffic = {
        "provider": {"gatewayAPI": GATEWAY},
        "affinity": {"type": "Header", "header": {"name": "x-session-id"}},
    }
    world = deployed(traffic=traffic)
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.ANALYZING)
    assert world.route is not None
    assert 3 <= len(world.route["rules"]) <= 4
    world.run(7200, lambda _: world.phase is Phase.IDLE and len(world.state.history) == 2)
    assert len(world.route["rules"]) == 1


def blue_green(**changes: object) -> GatewayWorld:
    return deployed(strategy={"blueGreen": {"bake": "8m", "scaleDownDelay": "60s"}}, **changes)


def test_given_blue_green_when_it_switches_then_the_route_goes_from_0_to_100_in_one_step() -> None:
    world = blue_green()
    world.set_image("v2")
    seen: list[int] = []

    def note(w: object) -> bool:
        weight = weights(world.observe()).get(Arm.CANDIDATE, 0)
        if world.phase is not Phase.IDLE and seen[-1:] != [weight]:
            seen.append(weight)
        return world.phase is Phase.IDLE and len(world.state.history) == 2

    world.run(7200, note)
    assert world.state.history[-1].outcome is EndReason.PROMOTED, world.story()
    assert seen[:2] == [0, 100]
    assert world.lost == 0
    assert "chat-preview" in world.services


@pytest.mark.parametrize(
    "behaviour", [Behaviour(error_rate=0.05), Behaviour(ttft=1.8)], ids=["errors", "slow"]
)
def test_given_blue_green_when_the_bake_fails_then_the_route_goes_back_and_no_request_is_lost(
    behaviour: Behaviour,
) -> None:
    world = blue_green()
    world.behaviours["v2"] = behaviour
    world.set_image("v2")
    world.run(7200, lambda _: world.phase is Phase.IDLE and len(world.state.history) == 2)
    assert world.state.history[-1].outcome is EndReason.ANALYSIS_FAILED, world.story()
    assert Phase.BAKING in world.phases
    assert weights(world.observe()) == {Arm.STABLE: 100}
    assert world.lost == 0


@pytest.mark.parametrize("fault", [{"deaf": True}, {"dropped": Arm.CANDIDATE}], ids=str)
def test_given_blue_green_when_the_gateway_does_not_switch_then_it_goes_back_and_pauses(
    fault: dict[str, object],
) -> None:
    world = blue_green()
    for name, value in fault.items():
        setattr(world, name, value)
    world.set_image("v2")
    world.until_phase(Phase.PAUSED)
    assert world.state.rollout is not None
    assert world.state.rollout.paused_reason == "TrafficUnverified"
    assert Phase.BAKING not in world.phases
    world.run(30)
    assert weights(world.observe()) == {Arm.STABLE: 100}
