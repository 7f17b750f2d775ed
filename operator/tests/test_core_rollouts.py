from __future__ import annotations

import copy
import json
from datetime import timedelta

import pytest
from world_builders import Behaviour, World, names, world

from rampway_operator.core.config_refs import copy_name
from rampway_operator.core.objects import child_name, report_name
from rampway_operator.core.observed import Pool
from rampway_operator.core.state import EndReason, Phase

WARM = {"source": {"promptSet": {"configMapName": "warm"}}}
STEPS = [{"setWeight": 25}, {"analysis": {}}, {"setWeight": 100}]


def canary(**fields: object) -> dict[str, object]:
    return {"canary": {"bake": "30s", "scaleDownDelay": "5s", **fields}}


def reasons(w: World) -> list[str]:
    return [d.reason for d in w.state.decisions]


def last(w: World) -> EndReason:
    return w.state.history[-1].outcome


def candidates(w: World) -> list[str]:
    """Names of pods of the candidate that get traffic."""
    rollout = w.state.rollout
    wanted = rollout.candidate.hash if rollout is not None else ""
    return [p.name for p in w.serving() if p.hash == wanted]


def test_given_nothing_when_deployed_first_then_it_is_checked_smoked_served_and_promoted() -> None:
    w = world().deploy()
    assert reasons(w) == [
        "RolloutStarted",
        "PreflightPassed",
        "PodsReady",
        "Promoted",
        "RolloutEnded",
    ]
    assert "NoStable" in w.state.decisions[2].message
    assert len(w.serving()) == 4
    assert w.condition("Ready")["status"] == "True"
    assert w.condition("RolloutComplete")["reason"] == "Promoted"
    assert w.state.stable is not None
    assert w.state.stable.number == 1


def test_given_a_good_candidate_when_rolled_out_then_weights_grow_and_it_is_promoted() -> None:
    w = world(warmup=WARM).deploy()
    w.set_image("v2")
    weights: list[int] = []

    def watch(w: World) -> bool:
        rollout = w.state.rollout
        if rollout is not None and (not weights or weights[-1] != rollout.verified_weight):
            weights.append(rollout.verified_weight)
        return w.phase is Phase.IDLE and bool(w.state.history) and len(w.state.history) == 2

    w.run(3600, watch)
    w.until_settled()
    assert weights == [0, 20, 25, 50, 100]
    assert last(w) is EndReason.PROMOTED
    assert {p.image for p in w.serving()} == {"v2"}
    assert len(w.live()) == 4


@pytest.mark.parametrize(
    ("replicas", "surge"),
    [(r, s) for r in (1, 2, 3, 5, 8) for s in (1, 2, "50%", 0) if (r, s) != (1, 0)],
)
def test_given_any_size_when_rolled_out_then_no_capacity_is_lost_and_no_surge_is_exceeded(
    replicas: int, surge: int | str
) -> None:
    unavailable = 1 if surge == 0 else 0
    w = world(
        replicas=replicas, strategy=canary(maxSurge=surge, maxUnavailable=unavailable)
    ).deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED, w.story()


def test_given_a_slow_candidate_when_analysed_then_stable_is_at_need_before_its_weight_goes() -> (
    None
):
    """T16: stable is scaled first, then traffic moves, then the candidate goes."""
    w = world()
    w.behaviours = {"slow": Behaviour(ttft=1.8)}
    w.deploy()
    w.set_image("slow")
    w.until_phase(Phase.ROLLING_BACK)
    assert w.state.rollout is not None
    assert w.state.rollout.desired_weight == 0
    w.until_settled()
    assert last(w) is EndReason.ANALYSIS_FAILED
    assert {p.image for p in w.serving()} == {"v1"}
    assert "ttft-tail" in w.state.history[-1].message
    assert w.condition("AnalysisPassing")["status"] == "False"
    assert w.condition("Stalled")["status"] == "True"
    assert w.condition("Ready")["status"] == "True"


def test_given_a_cold_candidate_when_analysed_then_the_hit_rate_is_the_recorded_reason() -> None:
    w = world()
    w.behaviours = {"cold": Behaviour(hit_rate=0.5)}
    w.deploy()
    w.set_image("cold")
    w.until_settled()
    assert last(w) is EndReason.ANALYSIS_FAILED
    assert "hit-rate" in w.state.history[-1].message


def test_given_check_env_blames_the_image_when_tried_then_rolled_back_at_once_without_a_request() -> (
    None
):
    """T3, and user story 4."""
    w = world()
    w.behaviours = {"old": Behaviour(check_exit=10)}
    w.deploy()
    w.set_image("old")
    w.until_phase(Phase.PREFLIGHT)
    served: set[str] = set()
    ended_at = None

    def watch(w: World) -> bool:
        nonlocal ended_at
        served.update(p.image for p in w.serving())
        if w.phase is Phase.ROLLING_BACK and ended_at is None:
            ended_at = w.now
        return w.phase is Phase.IDLE

    w.run(60, watch)
    assert served == {"v1"}
    assert last(w) is EndReason.BAD_REVISION
    assert "3.4.25" in w.state.history[-1].message
    assert w.condition("EnvironmentReady")["reason"] == "BadRevision"
    assert ended_at is not None
    assert ended_at - w.state.history[-1].started_at < timedelta(seconds=10)


def test_given_two_bad_nodes_when_tried_then_they_are_avoided_and_the_rollout_goes_on() -> None:
    w = world()
    w.behaviours = {"v2": Behaviour(bad_nodes=frozenset({"n1", "n2"}))}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED
    assert {p.node for p in w.live()} <= {"n3", "n4"}


def test_given_more_bad_nodes_than_allowed_when_tried_then_rolled_back_for_bad_nodes() -> None:
    w = world()
    w.behaviours = {"v2": Behaviour(bad_nodes=frozenset({"n1", "n2", "n3", "n4"}))}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.BAD_NODES


def test_given_traffic_when_a_later_pod_fails_its_check_then_no_capacity_is_lost_on_the_way_back() -> (
    None
):
    w = world(preflight={"onFailure": {"maxAvoidedNodes": 0}}).deploy()
    w.set_image("v2")
    w.run(
        900,
        lambda w: (
            w.phase is Phase.ANALYZING
            and w.state.rollout is not None
            and w.state.rollout.step_index > 4
        ),
    )
    used = {p.node for p in w.live() if p.image == "v2"}
    w.behaviours = {"v2": Behaviour(bad_nodes=frozenset(set(w.nodes) - used))}
    w.until_settled()
    assert last(w) is EndReason.BAD_NODES
    assert {p.image for p in w.serving()} == {"v1"}


def test_given_a_check_that_cannot_run_when_retried_in_vain_then_it_is_no_verdict_on_metrics() -> (
    None
):
    w = world()
    w.behaviours = {"v2": Behaviour(check_exit=12)}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.INFRASTRUCTURE
    assert reasons(w).count("CheckRetried") == 1


def test_given_a_check_that_hangs_when_its_time_is_over_then_it_is_retried_and_given_up() -> None:
    w = world(preflight={"timeout": "30s"})
    w.behaviours = {"v2": Behaviour(check_seconds=10_000)}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.INFRASTRUCTURE
    assert "more than 30s" in w.state.history[-1].message


def test_given_preflight_only_warns_when_the_check_is_bad_then_the_rollout_goes_on() -> None:
    w = world(preflight={"mode": "Warn"})
    w.deploy()
    commands = [
        s.manifest["spec"]["template"]["spec"]["initContainers"][0]["command"]
        for s in w.sets.values()
    ]
    assert all("--warn" in command for command in commands)


def test_given_pods_that_never_come_up_when_the_deadline_is_over_then_rolled_back() -> None:
    """T1: measured from a stored instant; restarts of the operator do not reset it."""
    w = world(progressDeadline="5m")
    w.behaviours = {"v2": Behaviour(start_seconds=10_000)}
    w.deploy()
    w.set_image("v2")
    begun = w.now
    for _ in range(40):
        w.crash_at = w.writes + 1
        w.run(10)
    w.until_settled()
    assert last(w) is EndReason.PROGRESS_DEADLINE_EXCEEDED
    assert w.state.history[-1].ended_at - begun < timedelta(minutes=6)


def test_given_a_quota_when_pods_cannot_be_made_then_it_is_capacity_and_not_the_candidate() -> None:
    """T11: nothing that serves was taken away for it."""
    w = world(progressDeadline="5m").deploy()
    w.quota = 4
    w.set_image("v2")
    w.run(60)
    assert "InsufficientCapacity" in w.status["waitingFor"]
    assert w.status["reason"] == "InsufficientCapacity"
    w.until_settled()
    assert last(w) is EndReason.INSUFFICIENT_CAPACITY
    assert w.condition("AnalysisPassing")["status"] == "Unknown"
    assert w.condition("EnvironmentReady")["status"] == "True"
    assert "quota" in w.state.history[-1].message
    assert len(w.serving()) == 4


def test_given_a_crash_loop_when_seen_then_it_ends_long_before_the_deadline() -> None:
    w = world()
    w.behaviours = {"v2": Behaviour(crashes=True)}
    w.deploy()
    w.set_image("v2")
    begun = w.now
    w.until_settled()
    assert last(w) is EndReason.CANDIDATE_UNAVAILABLE
    assert w.now - begun < timedelta(minutes=3)


def test_given_a_ready_pod_without_a_token_when_tried_then_it_never_gets_traffic() -> None:
    w = world(progressDeadline="2m")
    w.behaviours = {"v2": Behaviour(smoke_fails=True)}
    w.deploy()
    w.set_image("v2")
    w.run(100, lambda w: any(p.hash == w.spec_hash and w.is_ready(p) for p in w.live()))
    for _ in range(30):
        w.run(2)
        assert {p.image for p in w.serving()} == {"v1"}
    w.until_settled()
    assert last(w) is EndReason.SMOKE_FAILED


def test_given_a_broken_stable_when_a_fix_comes_then_it_is_not_held_up() -> None:
    """T2: and its promotion rests on its own absolute objectives, not on a comparison with nothing."""
    w = world(strategy=canary(bake="3m")).deploy()
    w.pristine = False
    w.behaviours = {"v1": Behaviour(crashes=True)}
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED, w.story()
    assert "StableDown" in " ".join(d.message + d.reason for d in w.state.decisions)


def test_given_a_rollout_when_a_third_revision_comes_then_the_second_winds_down_first() -> None:
    """T4, T6: monotonically, and the third starts from step 0."""
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    second = w.state.rollout
    assert second is not None
    w.set_image("v3")
    sizes = []

    def watch(w: World) -> bool:
        sizes.append(len(w.live(second.candidate.hash)))
        rollout = w.state.rollout
        return rollout is not None and rollout.candidate.hash != second.candidate.hash

    w.run(600, watch)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 0
    third = w.state.rollout
    assert third is not None
    assert (third.step_index, third.attempt, third.candidate.number) == (0, 1, 3)
    assert last(w) is EndReason.SUPERSEDED
    w.until_settled()
    assert {p.image for p in w.serving()} == {"v3"}


def test_given_a_rollout_when_the_spec_goes_back_to_stable_then_it_is_reverted_and_not_failed() -> (
    None
):
    """T27: through the planner; nothing that serves is deleted."""
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.set_image("v1")
    w.until_settled()
    assert last(w) is EndReason.REVERTED
    assert w.state.failed == ()
    assert w.condition("Stalled")["status"] == "False"
    assert w.condition("RolloutComplete")["reason"] == "Promoted"


@pytest.mark.parametrize(
    "phase",
    [
        Phase.PREFLIGHT,
        Phase.PROVISIONING,
        Phase.WARMING,
        Phase.SHIFTING,
        Phase.ANALYZING,
        Phase.PAUSED,
        Phase.BAKING,
    ],
)
def test_given_any_phase_when_aborted_then_the_candidate_ends_at_weight_zero(phase: Phase) -> None:
    """T15, T18, T20, T24: abort is legal in every phase and reaches a verified zero."""
    steps = [{"setWeight": 25}, {"analysis": {}}, {"setWeight": 100}]
    if phase is Phase.PAUSED:
        steps.insert(1, {"pause": {}})
    extra = {} if phase is Phase.SHIFTING else {"warmup": WARM}
    w = world(strategy=canary(steps=steps, maxSurge="100%"), **extra).deploy()
    w.set_image("v2")
    w.until_phase(phase)
    w.give("abort")
    w.until_settled()
    assert last(w) is EndReason.ABORTED
    assert {p.image for p in w.serving()} == {"v1"}
    assert all(p.labels.get(names.LABEL_ROTATION) != "true" for p in w.live() if p.image == "v2")
    assert w.command is None
    last_command = w.state.last_command
    assert last_command is not None
    assert last_command.result == "Applied"
    w.run(600)
    assert len(w.state.history) == 2, "an aborted revision is not tried again by itself"


def test_given_a_full_promotion_under_way_when_aborted_then_abort_wins() -> None:
    """T17: the newest command wins, and abort beats promote."""
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.give("promote-full", "a")
    w.run(600, lambda w: w.state.rollout is not None and w.state.rollout.desired_weight == 100)
    w.give("abort", "b")
    w.until_settled()
    assert last(w) is EndReason.ABORTED
    assert {p.image for p in w.serving()} == {"v1"}


def test_given_a_pause_step_when_promoted_then_it_goes_on_and_a_stale_command_does_not() -> None:
    steps = [{"setWeight": 25}, {"pause": {}}, {"analysis": {}}, {"setWeight": 100}]
    w = world(strategy=canary(steps=steps)).deploy()
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.run(300)
    assert w.phase is Phase.PAUSED
    w.command = f"promote/{w.spec_hash}/0#x"
    w.run(5)
    command = w.state.last_command
    assert command is not None
    assert command.result.startswith("Stale")
    assert w.phase is Phase.PAUSED
    w.give("promote", "y")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_a_command_that_stays_in_place_when_read_again_then_it_acts_once() -> None:
    steps = [{"setWeight": 25}, {"pause": {}}, {"pause": {}}, {"setWeight": 100}]
    w = world(strategy=canary(steps=steps)).deploy()
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.give("promote", "same")
    kept = w.command
    for _ in range(20):
        w.tick()
        w.advance(1)
        w.command = kept
    rollout = w.state.rollout
    assert rollout is not None
    assert rollout.step_index == 2


def test_given_a_retry_that_failed_again_when_its_command_is_still_there_then_it_is_not_obeyed_again() -> (
    None
):
    w = world()
    w.behaviours = {"v2": Behaviour(check_exit=10)}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    tries = len(w.state.history)
    w.give("retry", "same")
    kept = w.command
    for _ in range(300):
        w.tick()
        w.advance(1)
        w.command = kept
    assert w.state.phase is Phase.IDLE
    assert len(w.state.history) == tries + 1


def test_given_a_failed_revision_when_nothing_changes_then_it_is_not_tried_again_until_retry() -> (
    None
):
    """T40: and the second try has a number and pods of its own."""
    w = world()
    w.behaviours = {"v2": Behaviour(check_exit=10)}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    before = len(w.state.history)
    w.edit(lambda spec: spec.update(replicas=5))
    w.pristine = False
    w.run(600)
    assert len(w.state.history) == before, "resizing is no new try"
    w.behaviours = {}
    w.give("retry")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED
    assert w.state.history[-1].number == 3


def test_given_a_failed_revision_when_requirements_change_then_it_is_tried_with_the_new_ones() -> (
    None
):
    w = world(preflight={"requirements": {"triton": ">=9"}})
    w.behaviours = {"v2": Behaviour(check_exit=10)}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    w.behaviours = {}
    w.edit(lambda spec: spec["preflight"].update(requirements={"triton": ">=3"}))
    w.until_settled()
    assert last(w) is EndReason.PROMOTED
    commands = {
        s.manifest["spec"]["template"]["spec"]["initContainers"][0]["command"][3]
        for n, s in w.sets.items()
        if w.spec_hash in n and not n.endswith("-b")
    }
    assert commands == {'{"triton":">=3"}'}


def test_given_a_failed_first_deployment_when_it_ends_then_nothing_serves_and_it_is_stalled() -> (
    None
):
    w = world()
    w.behaviours = {"v1": Behaviour(check_exit=10)}
    w.until_settled()
    assert w.state.stable is None
    assert w.live() == []
    assert w.condition("Stalled")["status"] == "True"
    assert w.condition("Ready")["status"] == "False"
    w.behaviours = {}
    w.set_image("v2")
    w.deploy()
    assert {p.image for p in w.serving()} == {"v2"}


def test_given_no_traffic_when_analysed_then_it_is_undecided_and_never_promoted() -> None:
    """T33: no data is not success."""
    w = world(analysis={"interval": "15s", "maxDuration": "5m"}).deploy()
    w.requests_per_window = 0
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    assert w.status["reason"] == "AnalysisUndecided"
    w.run(7200)
    assert w.phase is Phase.PAUSED
    assert candidates(w)
    w.give("abort")
    w.until_settled()
    assert last(w) is EndReason.ABORTED


def test_given_metrics_that_cannot_be_read_when_analysed_then_it_holds_and_then_pauses() -> None:
    w = world(analysis={"interval": "15s", "outage": {"maxDuration": "5m"}}).deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.scrape_error = "connection refused"
    w.run(120)
    assert w.phase is Phase.ANALYZING
    w.scrape_error = ""
    w.run(60)
    rollout = w.state.rollout
    assert rollout is not None
    assert rollout.outage_since is None
    w.scrape_error = "connection refused"
    w.until_phase(Phase.PAUSED)
    assert w.status["reason"] == "MetricsOutage"


def test_given_a_metric_that_does_not_exist_when_analysed_then_the_spec_is_not_valid() -> None:
    """T37."""
    w = world().deploy()
    w.missing_metrics = ("vllm:time_to_first_token_seconds",)
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    assert w.status["reason"] == "MetricMissing"
    assert w.condition("SpecValid")["status"] == "False"
    assert w.status["rollout"]["weight"]["verified"] == 0


def test_given_endpoints_that_do_not_follow_when_shifting_then_back_to_the_last_weight_and_paused() -> (
    None
):
    w = world(strategy=canary(maxSurge="100%")).deploy()
    w.set_image("v2")
    w.run(
        900,
        lambda w: (
            w.phase is Phase.ANALYZING
            and w.state.rollout is not None
            and w.state.rollout.step_index > 2
        ),
    )
    w.frozen_routes = True
    w.pristine = False
    w.until_phase(Phase.PAUSED)
    rollout = w.state.rollout
    assert rollout is not None
    assert w.status["reason"] == "TrafficUnverified"
    assert rollout.desired_weight == 25
    w.frozen_routes = False
    w.give("promote")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_weight_when_every_candidate_endpoint_vanishes_then_it_goes_to_zero_at_once() -> None:
    """T21: and comes back only over verified pods."""
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.pristine = False
    for pod in w.live(w.spec_hash):
        w.kill(pod)
    w.tick()
    rollout = w.state.rollout
    assert rollout is not None
    assert (rollout.desired_weight, rollout.verified_weight) == (0, 0)
    assert w.phase is Phase.PROVISIONING
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_a_candidate_that_vanishes_again_and_again_when_seen_then_it_is_rolled_back() -> None:
    w = world().deploy()
    w.pristine = False
    w.set_image("v2")
    for _ in range(4):
        w.run(600, lambda w: w.phase in (Phase.ANALYZING, Phase.IDLE))
        for pod in w.live(w.spec_hash):
            w.kill(pod)
        w.tick()
    w.until_settled()
    assert last(w) is EndReason.CANDIDATE_UNAVAILABLE


def test_given_a_rollback_when_stable_is_not_ready_then_the_candidate_serves_until_it_is() -> None:
    """T26: the rollback gates on its target, not on the candidate."""
    w = world(strategy=canary(steps=[{"setWeight": 50}, {"pause": {}}])).deploy()
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    w.pristine = False
    for pod in w.live():
        if pod.image == "v1":
            pod.killed = True
    w.give("abort")
    w.run(60)
    assert {p.image for p in w.serving()} == {"v2"}
    for pod in w.live():
        pod.killed = False
    w.until_settled()
    assert last(w) is EndReason.ABORTED
    assert {p.image for p in w.serving()} == {"v1"}


def test_given_promotions_when_the_old_spec_comes_back_then_it_is_a_new_rollout_of_that_revision() -> (
    None
):
    """T29: stable is a pointer that only promotion moves; no older revision revives by itself."""
    w = world().deploy()
    first = w.spec_hash
    w.set_image("v2")
    w.until_settled()
    w.set_image("v1")
    w.run(60, lambda w: w.state.rollout is not None)
    assert w.state.stable is not None
    assert w.state.stable.hash != first
    w.until_settled()
    assert w.state.stable.hash == first
    assert w.state.stable.number == 3


def test_given_a_rollout_when_replicas_change_then_stable_is_resized_and_no_revision_is_made() -> (
    None
):
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.pristine = False
    w.edit(lambda spec: spec.update(replicas=8))
    w.run(120)
    assert w.state.rollout is not None
    assert w.state.rollout.candidate.number == 2
    assert len(w.serving()) >= 8
    w.until_settled()
    assert last(w) is EndReason.PROMOTED
    assert len(w.serving()) == 8


def test_given_a_rollout_when_only_steps_change_then_the_current_step_starts_again() -> None:
    w = world().deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.edit(lambda spec: spec["strategy"]["canary"].update(steps=STEPS))
    w.run(10)
    assert "PlanChanged" in reasons(w)
    rollout = w.state.rollout
    assert rollout is not None
    assert rollout.candidate.number == 2
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_spec_paused_when_set_then_no_step_advances_and_safety_stays_live() -> None:
    w = world()
    w.behaviours = {"v2": Behaviour()}
    w.deploy()
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.edit(lambda spec: spec.update(paused=True))
    w.run(300)
    rollout = w.state.rollout
    assert rollout is not None
    assert (w.phase, w.status["reason"]) == (Phase.PAUSED, "SpecPaused")
    step = rollout.step_index
    w.give("promote")
    w.run(10)
    assert w.state.rollout is not None
    assert w.state.rollout.step_index == step
    w.behaviours["v2"].error_rate = 0.2
    w.run(1800, lambda w: w.phase is Phase.IDLE)
    assert last(w) is EndReason.ANALYSIS_FAILED


def test_given_spec_paused_when_taken_back_then_it_goes_on_where_it_was() -> None:
    w = world().deploy()
    w.set_image("v2")
    for phase in (Phase.PREFLIGHT, Phase.PROVISIONING, Phase.ANALYZING, Phase.BAKING):
        w.until_phase(phase)
        w.edit(lambda spec: spec.update(paused=True))
        w.run(60)
        assert w.phase is Phase.PAUSED
        w.edit(lambda spec: spec.update(paused=False))
        w.run(60, lambda w: w.phase is not Phase.PAUSED)
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_a_lost_status_when_rebuilt_then_stable_is_what_serves_and_nothing_advances() -> None:
    """T69: state is rebuildable from the children alone."""
    w = world().deploy()
    stable = w.state.stable
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.status = {"observedGeneration": -1}
    w.run(600)
    assert w.state.stable == stable
    assert (w.phase, w.status["reason"]) == (Phase.PAUSED, "StateRebuilt")
    assert candidates(w)
    w.give("promote")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_a_lost_status_when_idle_then_it_is_found_again_without_a_write_to_children() -> None:
    w = world().deploy()
    stable, made = w.state.stable, list(w.creates)
    w.status = {"observedGeneration": -1}
    w.until_settled()
    assert w.state.stable == stable
    assert w.creates == made


def test_given_an_operator_upgrade_when_defaults_appear_in_the_spec_then_nothing_rolls() -> None:
    """T70: the hash covers what users wrote; explicit defaults are no change."""
    w = world().deploy()
    before = w.writes

    def write_defaults(spec: dict[str, object]) -> None:
        engine = spec["engine"]
        assert isinstance(engine, dict)
        engine.update(port=8000, metricsPath="/metrics", env=[], type="Rampway", resources={})

    w.edit(write_defaults)
    w.run(120)
    assert w.phase is Phase.IDLE
    assert w.writes == before + 1, "one status write for the new generation"


def test_given_an_autoscaler_when_it_looks_in_a_rollout_then_it_sees_stable_only() -> None:
    """T60, T86."""
    w = world().deploy()
    stable = w.state.stable
    assert stable is not None
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    chosen = dict(part.split("=") for part in w.status["selector"].split(","))
    seen = [p for p in w.live() if chosen.items() <= p.labels.items()]
    assert seen
    assert {(p.hash, p.pool) for p in seen} == {(stable.hash, Pool.MAIN)}
    assert w.status["replicas"] == len(seen)


def test_given_a_foreign_service_of_our_name_when_deployed_then_nothing_is_made() -> None:
    w = world()
    w.foreign = ("Service/chat",)
    w.run(60)
    assert w.creates == []
    assert w.condition("SpecValid")["reason"] == "NameConflict"
    w.foreign = ()
    w.deploy()


def test_given_no_revision_ever_ready_when_shifting_then_selectors_of_services_never_change() -> (
    None
):
    """T52: one Service a revision, and the alias; none is ever edited."""
    w = world().deploy()
    before = copy.deepcopy(w.services)
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    assert before.items() <= w.services.items()
    assert {n for n in w.services if n.endswith("-b")}


def test_given_old_revisions_when_more_than_the_limit_then_the_oldest_and_their_names_go() -> None:
    w = world(revisionHistoryLimit=1)
    w.deploy()
    for image in ("v2", "v3", "v4"):
        w.set_image(image)
        w.until_settled()
    assert len(w.sets) == 2
    assert len(w.services) == 3
    assert len(w.config_maps) == 2
    assert len(w.state.history) == 1


def test_given_a_stable_pod_that_dies_when_idle_then_its_successor_serves_without_the_operator() -> (
    None
):
    w = world().deploy()
    w.pristine = False
    w.kill(w.live()[0])
    for _ in range(30):
        w.advance(1)
    assert len(w.serving()) == 4


@pytest.mark.parametrize("before", [True, False])
def test_given_a_crash_at_any_write_when_restarted_then_the_end_is_the_same(before: bool) -> None:
    """Crash points of a whole rollout: the same end, and no object made twice."""

    def begin() -> World:
        w = world(strategy=canary(steps=STEPS, bake="10s")).deploy()
        w.set_image("v2")
        return w

    reference = begin()
    first = reference.writes
    reference.until_settled()
    for point in range(first + 1, reference.writes + 1, 4):
        w = begin()
        w.crash_at, w.crash_before = point, before
        w.until_settled()
        assert last(w) is EndReason.PROMOTED, point
        assert sorted(set(w.creates)) == sorted(set(reference.creates))
        assert {p.image for p in w.serving()} == {"v2"}


def test_given_a_status_lost_in_the_first_deployment_when_seen_then_it_is_tried_anew() -> None:
    w = world()
    w.until_phase(Phase.PROVISIONING)
    w.status = {"observedGeneration": -1}
    w.deploy()
    assert w.state.stable is not None
    assert w.state.stable.number == 2, "numbers never repeat"


def test_given_a_status_without_its_stable_revision_when_seen_then_what_serves_is_not_taken_for_old() -> (
    None
):
    w = world().deploy()
    stable = w.state.stable
    w.set_image("v2")
    w.until_phase(Phase.ANALYZING)
    w.status["stableRevision"] = {"hash": 7}
    w.run(120)
    assert w.state.stable == stable
    assert w.phase is Phase.PAUSED
    assert len(w.serving()) >= 4


def test_given_steps_without_analysis_when_nothing_was_measured_then_a_person_has_to_approve() -> (
    None
):
    """T33: neither a clock nor silence promotes."""
    w = world(strategy=canary(steps=[{"setWeight": 50}, {"setWeight": 100}], bake="2m")).deploy()
    w.requests_per_window = 0
    w.set_image("v2")
    w.until_phase(Phase.PAUSED)
    assert w.status["reason"] == "NotApproved"
    w.give("promote")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_steps_without_analysis_when_the_bake_proves_the_absolute_objectives_then_promoted() -> (
    None
):
    w = world(strategy=canary(steps=[{"setWeight": 50}, {"setWeight": 100}], bake="3m")).deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED


def test_given_bad_nodes_when_their_pods_are_gone_then_the_report_still_tells_of_each_node() -> (
    None
):
    w = world(configRefs=[{"name": "report"}])
    w.configs = {"report": {"data": {"a": "1"}}}
    w.behaviours = {"v2": Behaviour(bad_nodes=frozenset({"n1", "n2"}))}
    w.deploy()
    w.set_image("v2")
    w.until_settled()
    assert last(w) is EndReason.PROMOTED
    stable = w.state.stable
    assert stable is not None
    name = report_name("chat", stable.hash)
    assert name != copy_name(child_name("chat", stable.hash), "report")
    codes = {
        node: json.loads(text)["exitCode"] for node, text in w.config_maps[name]["data"].items()
    }
    assert codes.keys() <= set(w.nodes)
    avoided = {node for node, code in codes.items() if code == 11}
    assert avoided <= {"n1", "n2"}
    assert avoided
    assert codes["n3"] == codes["n4"] == 0
    assert w.config_maps[name]["metadata"]["labels"][names.LABEL_REVISION] == stable.hash


def test_given_a_failed_revision_when_beyond_the_history_limit_then_its_report_goes_with_it() -> (
    None
):
    w = world(revisionHistoryLimit=1)
    w.behaviours = {"bad1": Behaviour(check_exit=10), "bad2": Behaviour(check_exit=10)}
    w.deploy()
    reports = []
    for image in ("bad1", "bad2"):
        w.set_image(image)
        w.until_settled()
        reports.append(report_name("chat", w.state.history[-1].hash))
        assert reports[-1] in w.config_maps
    w.run(120)
    assert reports[0] not in w.config_maps
    assert reports[1] in w.config_maps
