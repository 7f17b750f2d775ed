"""What users of other operators reported and no other test holds yet; docs/rollouts.md has the whole list."""

from __future__ import annotations

from datetime import timedelta

import pytest
from world_builders import Behaviour, World, world

from rampway_operator.core import names
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.state import EndReason, Phase

PAUSED = [{"setWeight": 25}, {"pause": {}}, {"setWeight": 100}]


def candidate_pods(w: World) -> set[str]:
    assert w.state.rollout is not None
    return {p.name for p in w.live(w.state.rollout.candidate.hash)}


def test_given_a_long_pause_when_the_deadline_would_be_over_then_it_does_not_fire() -> None:
    """T10: the deadline is for phases that make progress."""
    steps = {"canary": {"steps": PAUSED, "bake": "5m", "scaleDownDelay": "10m"}}
    w = world(progressDeadline="2m", strategy=steps).deploy()
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.run(600)
    assert w.phase is Phase.PAUSED
    w.give("promote")
    w.until_phase(Phase.DRAINING)
    w.run(500)
    assert w.phase is Phase.DRAINING, "waiting for scaleDownDelay is not a lack of progress"
    w.until_settled()


def test_given_foreign_hash_labels_when_deployed_then_they_are_left_alone() -> None:
    """T12: only labels under our own prefix mean anything."""
    labels = {"pod-template-hash": "abc", "rollouts-pod-template-hash": "def"}
    w = world(engine={"image": "v1", "podLabels": labels}).deploy()
    assert all(labels.items() <= p.labels.items() for p in w.live())
    with pytest.raises(InvalidSpec, match="belongs to the operator"):
        parse(
            {
                "metadata": {"name": "chat"},
                "spec": {"engine": {"image": "v1", "podLabels": {names.LABEL_REVISION: "x"}}},
            }
        )


def test_given_a_promotion_when_seen_then_the_pods_that_were_tried_are_the_ones_that_serve() -> (
    None
):
    """T25: nothing is made anew for the promotion."""
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.BAKING)
    tried = candidate_pods(w)
    w.until_settled()
    assert {p.name for p in w.serving()} >= tried
    assert w.state.history[-1].outcome is EndReason.PROMOTED


def test_given_a_failed_objective_when_on_failure_is_pause_then_a_person_decides() -> None:
    """T48."""
    w = world(analysis={"interval": "15s", "onFailure": "Pause"})
    w.behaviours = {"slow": Behaviour(ttft=1.8)}
    w.deploy()
    w.set_image("slow")
    w.until_phase(Phase.PAUSED)
    assert w.state.rollout is not None
    assert w.state.rollout.paused_reason == "AnalysisFailed"
    w.run(300)
    assert w.phase is Phase.PAUSED
    w.give("abort")
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.ABORTED


def test_given_a_scale_up_when_stable_grows_then_no_deadline_runs() -> None:
    """T63: pods that stable still lacks are no lack of progress of a candidate."""
    w = world(progressDeadline="2m").deploy()
    w.capacity = 4
    w.edit(lambda spec: spec.update(replicas=6))
    w.pristine = False
    w.run(600)
    assert w.phase is Phase.IDLE
    assert len(w.state.history) == 1
    assert w.condition("Reconciling")["reason"] == "Scaling"


def test_given_the_longest_name_when_deployed_then_every_child_has_a_legal_name() -> None:
    """T72: the world refuses names above 63 characters; this is the longest that is allowed."""
    longest = "a" * 40
    parse({"metadata": {"name": longest}, "spec": {"engine": {"image": "v1"}}})
    assert len(f"{longest}-0123456789-b-xxxxx") <= 63
    with pytest.raises(InvalidSpec, match="at most 40"):
        parse({"metadata": {"name": longest + "a"}, "spec": {"engine": {"image": "v1"}}})


@pytest.mark.parametrize("phase", [Phase.SHIFTING, Phase.WARMING])
def test_given_a_restarted_operator_when_pods_were_smoked_then_they_are_asked_again_and_not_lost(
    phase: Phase,
) -> None:
    """T85: nothing is remembered of readiness, and nothing is concluded from having forgotten."""
    w = world(warmup={"source": {"promptSet": {"configMapName": "warm"}}}).deploy()
    w.set_image("v2")
    w.until_phase(phase)
    w.smoked.clear()
    w.run(120)
    assert "PodsLost" not in [d.reason for d in w.state.decisions]
    begun = w.now
    w.until_settled()
    assert w.state.history[-1].outcome is EndReason.PROMOTED
    assert w.now - begun < timedelta(hours=1)
