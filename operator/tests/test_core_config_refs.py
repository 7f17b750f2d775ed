"""ConfigMaps as part of a revision: changed content is tried like any other change, and never leaks."""

from __future__ import annotations

from typing import Any

import pytest
from world_builders import Behaviour, World, world

from rampway_operator.core.config_refs import config_digests, content, with_copies
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.spec import ConfigRef, Engine, OnChange
from rampway_operator.core.state import EndReason, Phase

ENGINE = {
    "image": "v1",
    "volumes": [{"name": "args", "configMap": {"name": "args"}}],
    "volumeMounts": [{"name": "args", "mountPath": "/args"}],
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "args", "key": "a"}}}],
}


def deployed(on_change: str = "Rollout", **changes: Any) -> World:
    refs = [{"name": "args", "onChange": on_change}]
    w = world(engine=dict(ENGINE), configRefs=refs, **changes)
    w.configs["args"] = {"data": {"a": "1"}}
    return w.deploy()


def mounted(w: World, revision: str) -> dict[str, Any]:
    """The content that pods of a revision read."""
    pod = w.sets[f"chat-{revision}"].manifest["spec"]["template"]["spec"]
    [name] = [v["configMap"]["name"] for v in pod["volumes"] if v["name"] == "args"]
    [key_ref] = [
        e["valueFrom"]["configMapKeyRef"] for e in pod["containers"][0]["env"] if e["name"] == "A"
    ]
    assert key_ref["name"] == name
    assert w.config_maps[name]["immutable"] is True
    data: dict[str, Any] = w.config_maps[name]["data"]
    return data


def test_given_a_tracked_config_map_when_its_content_changes_then_it_is_rolled_out() -> None:
    """T75: a change of configuration alone is a revision."""
    w = deployed()
    assert w.state.stable is not None
    first = w.state.stable.hash
    w.configs["args"] = {"data": {"a": "2"}}
    w.until_phase(Phase.ANALYZING)
    assert w.state.rollout is not None
    second = w.state.rollout.candidate.hash

    assert second != first
    assert mounted(w, first) == {"a": "1"}, "a restarted stable pod reads what it was tried with"
    assert mounted(w, second) == {"a": "2"}
    w.until_settled()
    assert w.state.stable.hash == second
    assert w.state.history[-1].outcome is EndReason.PROMOTED


def test_given_a_rollout_when_the_config_map_goes_back_then_it_is_reverted() -> None:
    w = deployed()
    w.configs["args"] = {"data": {"a": "2"}}
    w.until_phase(Phase.ANALYZING)
    w.configs["args"] = {"data": {"a": "1"}}
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.REVERTED


def test_given_changes_to_be_ignored_when_content_changes_then_nothing_is_rolled_out() -> None:
    w = deployed("Ignore")
    w.configs["args"] = {"data": {"a": "2"}}
    writes = w.writes
    w.run(300)
    assert w.writes == writes
    w.edit(lambda spec: spec["engine"].update(image="v2"))
    w.until_settled()
    assert w.state.stable is not None
    assert mounted(w, w.state.stable.hash) == {"a": "2"}


@pytest.mark.parametrize("phase", [Phase.IDLE, Phase.ANALYZING, Phase.DRAINING])
def test_given_a_config_map_that_is_gone_when_seen_then_what_serves_stays_and_it_is_told(
    phase: Phase,
) -> None:
    w = deployed()
    if phase is not Phase.IDLE:
        w.edit(lambda spec: spec["engine"].update(image="v2"))
        w.until_phase(phase)
    history = len(w.state.history)
    del w.configs["args"]
    w.run(60)
    w.run(3600, lambda w: w.phase is Phase.IDLE)
    assert w.state.history[-1].outcome is EndReason.PROMOTED
    assert len(w.state.history) == history + (phase is not Phase.IDLE)
    assert len(w.serving()) == 4
    assert w.condition("SpecValid")["reason"] == "ConfigMissing"
    assert "create it" in w.condition("SpecValid")["message"]
    assert w.condition("Stalled")["status"] == "True"


def test_given_no_config_map_when_deployed_first_then_no_pod_is_made_until_it_exists() -> None:
    w = world(engine=dict(ENGINE), configRefs=[{"name": "args"}])
    w.run(120)
    assert w.pods == {}
    w.configs["args"] = {"data": {"a": "1"}}
    w.deploy()
    assert len(w.serving()) == 4


def test_given_old_revisions_beyond_the_limit_when_cleaned_up_then_their_copies_go_with_them() -> (
    None
):
    w = deployed(revisionHistoryLimit=1)
    for value in "23":
        w.configs["args"] = {"data": {"a": value}}
        w.until_phase(Phase.PREFLIGHT)
        w.until_settled()
    copies = [name for name in w.config_maps if name.endswith("-args")]
    assert sorted(copies) == sorted(f"{name}-args" for name in w.sets if not name.endswith("-b"))
    assert len(copies) == 2


def test_given_a_failed_candidate_when_its_config_is_ignored_then_a_retry_reads_it_anew() -> None:
    w = deployed("Ignore")
    w.behaviours = {"bad": Behaviour(check_exit=10)}
    w.edit(lambda spec: spec["engine"].update(image="bad"))
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.BAD_REVISION
    w.configs["args"] = {"data": {"a": "2"}}
    w.behaviours = {}
    w.give("retry")
    w.until_settled()
    assert w.state.stable is not None
    assert mounted(w, w.state.stable.hash) == {"a": "2"}


def test_given_content_when_digested_then_only_what_a_pod_sees_counts() -> None:
    refs = (ConfigRef("a"), ConfigRef("b", OnChange.IGNORE), ConfigRef("c", OnChange.IGNORE))
    one = config_digests(refs, {"a": content({"metadata": {"x": 1}, "data": {"k": "v"}}), "b": {}})
    two = config_digests(
        refs, {"a": content({"metadata": {}, "data": {"k": "v"}}), "b": {"data": {}}}
    )
    assert one == two
    assert (one["b"], one["c"]) == ("", "missing")
    assert one["a"] != config_digests(refs, {"a": {"binaryData": {"k": "v"}}, "b": {}})["a"]


def test_given_other_config_maps_when_pointed_to_copies_then_they_stay_as_they_are() -> None:
    engine = Engine(
        image="v1",
        volumes=({"name": "x", "configMap": {"name": "other"}}, {"name": "y", "emptyDir": {}}),
        env=({"name": "A", "value": "1"},),
    )
    assert with_copies(engine, (ConfigRef("args"),), "chat-0") == engine
    assert with_copies(engine, (), "chat-0") is engine


def test_given_bad_config_refs_when_parsed_then_every_fault_is_told() -> None:
    refs = [
        {"name": "a"},
        {"name": "a", "onChange": "Sometimes"},
        {"kind": "Secret", "name": "B"},
        {},
    ]
    with pytest.raises(InvalidSpec) as refused:
        parse(
            {"metadata": {"name": "chat"}, "spec": {"engine": {"image": "v"}, "configRefs": refs}}
        )
    told = "; ".join(refused.value.faults)
    for part in (
        "'a' is given twice",
        "'Sometimes'",
        "'Secret'",
        "'B'",
        "configRefs[3].name: is missing",
    ):
        assert part in told
