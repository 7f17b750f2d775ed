"""Blue-green in virtual time: a preview without traffic, one switch, and a way back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world_builders import START, Behaviour, World, world

from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.record import WINDOWS, note, pair_up
from rampway_operator.core.state import EndReason, Phase

EDGES = (0.1, 0.5, 1.0, float("inf"))
ABSOLUTE = {"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.005"}}


def blue_green(**fields: object) -> dict[str, object]:
    return {"blueGreen": {"bake": "8m", "scaleDownDelay": "60s", **fields}}


def deployed(**changes: object) -> World:
    fields = changes.pop("fields", {})
    assert isinstance(fields, dict)
    return world(strategy=blue_green(**fields), **changes).deploy()


def served_by(w: World) -> set[str]:
    return {p.image for p in w.serving()}


def switches(w: World, seconds: float = 7200) -> list[tuple[int, int]]:
    """(stable, candidate) pods in the endpoints, each time that changes, until the rollout has ended."""
    seen: list[tuple[int, int]] = []
    started = len(w.state.history)

    def watch(w: World) -> bool:
        now = [p.image for p in w.serving()]
        pair = (now.count("v1"), len(now) - now.count("v1"))
        if not seen or seen[-1] != pair:
            seen.append(pair)
        return len(w.state.history) > started and w.phase is Phase.IDLE

    w.run(seconds, watch)
    return seen


def test_given_a_good_candidate_when_switched_then_all_its_pods_enter_before_any_stable_pod_leaves() -> (
    None
):
    w = deployed()
    w.set_image("v2")
    seen = switches(w)
    w.until_settled()

    assert w.state.history[-1].outcome is EndReason.PROMOTED, w.story()
    assert seen[0] == (4, 0)
    assert seen[-1] == (0, 4)
    assert all(stable == 4 for stable, candidate in seen if candidate < 4)
    assert served_by(w) == {"v2"}
    assert len(w.live()) == 4


def test_given_a_preview_smaller_than_the_whole_when_switched_then_the_rest_is_there_first() -> (
    None
):
    w = deployed(fields={"previewReplicas": 1})
    w.set_image("v2")
    w.run(600, lambda w: bool(w.state.rollout and w.state.rollout.recorded))
    assert len([p for p in w.live() if p.image == "v2"]) == 1
    seen = switches(w)

    assert w.state.history[-1].outcome is EndReason.PROMOTED, w.story()
    assert all(stable == 4 for stable, candidate in seen if candidate < 4)


@pytest.mark.parametrize(
    ("image", "behaviour", "objective"),
    [
        ("slow", Behaviour(ttft=1.8), "ttft-tail"),
        ("cold", Behaviour(hit_rate=0.5), "hit-rate"),
        ("errors", Behaviour(error_rate=0.05), "errors"),
    ],
)
def test_given_a_worse_candidate_when_baked_then_it_is_switched_back_to_the_standing_pods(
    image: str, behaviour: Behaviour, objective: str
) -> None:
    w = deployed(fields={"bake": "10m"})
    w.behaviours = {image: behaviour}
    before = {p.name for p in w.live()}
    w.set_image(image)
    w.until_phase(Phase.BAKING)
    assert served_by(w) == {image}
    w.until_settled()

    assert w.state.history[-1].outcome is EndReason.ANALYSIS_FAILED, w.story()
    assert objective in w.state.history[-1].message
    assert served_by(w) == {"v1"}
    assert {p.name for p in w.live()} == before, "the old pods stood all the time"


def test_given_stable_figures_when_baked_then_they_are_recorded_before_the_switch_and_used_once() -> (
    None
):
    w = deployed()
    w.set_image("v2")
    w.until_phase(Phase.BAKING)
    rollout = w.state.rollout
    assert rollout is not None
    assert len(rollout.recorded) == WINDOWS
    w.run(300)
    assert w.state.rollout is not None
    assert len(w.state.rollout.recorded) < WINDOWS - 10


def test_given_no_traffic_when_nothing_can_be_recorded_then_it_switches_and_a_person_decides() -> (
    None
):
    w = deployed(analysis={"interval": "15s", "maxDuration": "20m"})
    w.requests_per_window = 0
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    assert w.state.rollout is not None
    assert w.state.rollout.paused_reason == "NotApproved"
    assert w.state.rollout.verified_weight == 100
    w.give("promote")
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.PROMOTED


def test_given_a_preview_that_fails_its_objectives_when_judged_then_it_never_gets_traffic() -> None:
    w = deployed(
        fields={"prePromotion": {"objectives": ["errors"]}},
        analysis={"interval": "15s", "objectives": [ABSOLUTE]},
    )
    w.behaviours = {"bad": Behaviour(error_rate=0.05)}
    w.set_image("bad")
    seen = switches(w)

    assert w.state.history[-1].outcome is EndReason.ANALYSIS_FAILED
    assert seen == [(4, 0)]


def test_given_a_preview_that_passes_when_judged_then_only_the_bake_approves_the_promotion() -> (
    None
):
    w = deployed(
        fields={"prePromotion": {"objectives": ["errors"]}},
        analysis={"interval": "15s", "objectives": [ABSOLUTE]},
    )
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.until_phase(Phase.BAKING)
    assert w.state.rollout is not None
    assert w.state.rollout.approval == ""
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.PROMOTED


def test_given_no_automatic_promotion_when_the_preview_is_up_then_a_person_lets_it_switch() -> None:
    w = deployed(fields={"autoPromote": False})
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.run(300)
    assert served_by(w) == {"v1"}
    w.give("promote")
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.PROMOTED


def test_given_a_promotion_when_the_delay_is_not_over_then_the_old_pods_stand_without_traffic() -> (
    None
):
    w = deployed(fields={"scaleDownDelay": "10m"})
    w.set_image("v2")
    w.until_phase(Phase.DRAINING)
    w.run(300)
    assert len([p for p in w.live() if p.image == "v1"]) == 4
    assert served_by(w) == {"v2"}
    w.until_settled()
    assert [p for p in w.live() if p.image == "v1"] == []


def test_given_a_candidate_when_previewed_then_the_preview_service_selects_it_by_its_arm() -> None:
    w = deployed()
    selector = dict(w.services["chat-preview"]["spec"]["selector"])
    w.set_image("v2")
    w.run(600, lambda w: bool(w.state.rollout and w.state.rollout.recorded))

    chosen = {p.image for p in w.live() if selector.items() <= p.labels.items()}
    assert chosen == {"v2"}
    w.until_settled()
    assert w.services["chat-preview"]["spec"]["selector"] == selector
    assert not [p for p in w.live() if selector.items() <= p.labels.items()]


@pytest.mark.parametrize("back", [False, True])
def test_given_a_rollout_when_the_strategy_is_switched_then_it_starts_again_under_the_new_one(
    back: bool,
) -> None:
    """T7: with an unchanged template, and no rollout, it is no change at all."""
    kinds = [blue_green(), {"canary": {"bake": "60s", "scaleDownDelay": "5s"}}]
    first, second = kinds[::-1] if back else kinds
    w = world(strategy=first).deploy()
    w.edit(lambda spec: spec.update(strategy=second))
    w.until_settled()
    assert len(w.state.history) == 1
    w.edit(lambda spec: spec.update(strategy=first))
    w.set_image("v2")
    w.run(40)
    w.edit(lambda spec: spec.update(strategy=second))
    w.until_settled()

    assert [h.outcome for h in w.state.history][1:] == [EndReason.SUPERSEDED, EndReason.PROMOTED]
    assert "strategy changed" in w.state.history[1].message
    assert ("chat-preview" in w.services) is back


@pytest.mark.parametrize("phase", [Phase.PROVISIONING, Phase.SHIFTING, Phase.BAKING])
def test_given_any_moment_when_aborted_then_stable_serves_and_no_capacity_is_lost(
    phase: Phase,
) -> None:
    w = deployed()
    w.set_image("v2")
    w.until_phase(phase)
    w.give("abort")
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.ABORTED
    assert served_by(w) == {"v1"}


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("stride", [23, pytest.param(1, marks=pytest.mark.slow)])
def test_given_a_crash_at_any_write_when_restarted_then_the_end_is_the_same(
    stride: int, before: bool
) -> None:
    w = deployed(fields={"bake": "2m"}, analysis={"interval": "15s", "objectives": [ABSOLUTE]})
    w.set_image("v2")
    first = w.writes
    whole = replace_world(w)
    whole.until_settled()
    for at in range(first + 1, whole.writes + 1, stride):
        crashed = replace_world(w)
        crashed.crash_at, crashed.crash_before = at, before
        crashed.until_settled()
        assert crashed.state.history[-1].outcome is EndReason.PROMOTED, at
        assert served_by(crashed) == {"v2"}


def replace_world(w: World) -> World:
    """A copy that goes its own way from here."""
    import copy

    return copy.deepcopy(w)


def test_given_bad_fields_when_parsed_then_each_fault_says_what_to_do() -> None:
    def faults(strategy: object, **changes: object) -> str:
        raw = {
            "metadata": {"name": "chat"},
            "spec": {"engine": {"image": "v1"}, "strategy": strategy},
        }
        raw["spec"].update(changes)
        with pytest.raises(InvalidSpec) as refused:
            parse(raw)
        return "; ".join(refused.value.faults)

    assert "both" in faults({"canary": {}, "blueGreen": {}})
    assert "write `canary: {}`" in faults({})
    assert "need at least 1" in faults({"blueGreen": {"previewReplicas": "0%"}})
    named = {"blueGreen": {"prePromotion": {"objectives": ["nope", "ttft-tail"]}}}
    assert "'nope' is not in" in faults(named)
    assert "name an objective with slo" in faults(named)
    advisory = {"objectives": [{**ABSOLUTE, "blocking": False}]}
    assert "blocking false" in faults(
        {"blueGreen": {"prePromotion": {"objectives": ["errors"]}}}, analysis=advisory
    )


def window(counts: tuple[float, ...], edges: tuple[float, ...] = EDGES, **fields: float) -> Window:
    arm = ArmWindow(
        pods=4,
        requests=sum(counts),
        errors=fields.get("errors"),
        prompt_tokens=fields.get("prompt"),
        cached_tokens=fields.get("cached"),
        ttft=Histogram(edges, counts),
        inter_token=None,
        e2e=Histogram(edges, counts),
    )
    return Window(START, START + timedelta(seconds=15), candidate=arm, baseline=None, stable=arm)


@given(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), st.floats(0, 100))
def test_whatever_is_recorded_is_the_reference_later(counts: list[float], errors: float) -> None:
    spec = parse({"metadata": {"name": "chat"}, "spec": {"engine": {"image": "v1"}}})
    seen = window(tuple(counts), errors=errors)
    record = note(spec, (), [seen])
    [paired], left = pair_up(record, [seen])

    assert left == ()
    assert paired.stable is not None
    assert seen.stable is not None
    assert paired.stable == replace(seen.stable, e2e=None), "only what is compared is kept"


def test_given_a_record_when_used_up_or_unreadable_then_there_is_no_reference() -> None:
    spec = parse({"metadata": {"name": "chat"}, "spec": {"engine": {"image": "v1"}}})
    seen = window((1.0, 2.0, 3.0, 0.0))
    record = note(spec, (), [seen])
    paired, left = pair_up(record, [seen, seen])
    assert (paired[0].stable is None, paired[1].stable is None, left) == (False, True, ())

    other = window((1.0, 2.0, 3.0, 0.0), edges=(0.1, 0.5, 2.0, float("inf")))
    [paired_other], _ = pair_up(record, [other])
    assert paired_other.stable is not None
    assert paired_other.stable.ttft is None
    [junk], _ = pair_up(((4.0, 1.0),), [seen])
    assert junk.stable is None
    assert len(note(spec, record * 40, [seen])) == WINDOWS
