"""Faults that somebody could make in `decide` and `plan`, each with a test that must find it.

It does not know how they are tried: `test_core_mutants.py` does.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]

ROLLOUTS = "test_core_rollouts.py"
PLAN = "test_core_plan.py"
BLUE_GREEN = "test_core_blue_green.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` is in core/`file` exactly once; with `new` in its place `test` (file, -k words) must fail."""

    name: str
    file: str
    old: str
    new: str
    test: tuple[str, str]


MUTANTS = (
    Mutant(
        "a rollback keeps the weight", "tick.py",
        "            desired_weight=0,\n            weight_note",
        "            desired_weight=self.rollout.desired_weight,\n            weight_note",
        (ROLLOUTS, "slow_candidate"),
    ),
    Mutant(
        "a bake promotes without approval", "rules_traffic.py",
        "    if approval:\n        return promote(\n            seen, approval,",
        "    if True:\n        return promote(\n            seen, approval or 'Evidence',",
        (ROLLOUTS, "nothing_was_measured"),
    ),
    Mutant(
        "the deadline never fires", "rules_start.py",
        "    if tick.in_phase <= tick.spec.progress_deadline:\n        return None",
        "    if tick.in_phase is not None:\n        return None",
        (ROLLOUTS, "never_come_up"),
    ),
    Mutant(
        "a failed hash is tried again", "rules_start.py",
        "    if failed is not None:", "    if failed is not None and failed.hash == '':",
        (ROLLOUTS, "not_tried_again"),
    ),
    Mutant(
        "spec.paused holds nothing", "rules_pause.py",
        "    if not tick.spec.paused or tick.state.phase is Phase.PAUSED:",
        "    if tick.state.phase in set(Phase):",
        (ROLLOUTS, "spec_paused_when_set"),
    ),
    Mutant(
        "a command acts as often as it is read", "rules_command.py",
        "last.id == short(text)", "last.id == ''",
        (ROLLOUTS, "still_there"),
    ),
    Mutant(
        "applied counts as verified", "rules_traffic.py",
        "    if complete and agreed and rotation.candidate:", "    if rotation.candidate:",
        (ROLLOUTS, "do_not_follow"),
    ),
    Mutant(
        "a ready pod counts as one with traffic", "rotation.py",
        "    return sum(p.ready and p.name in observed.routed for",
        "    return sum(p.ready for",
        (ROLLOUTS, "a_good_candidate_when_rolled_out or any_size"),
    ),
    Mutant(
        "the surge is no limit", "scaling.py",
        "        granted = min(wanted, current + max(0, self.left))", "        granted = wanted",
        (ROLLOUTS, "any_size"),
    ),
    Mutant(
        "pods leave before others enter", "plan.py",
        "key=lambda change: not change.in_rotation", "key=lambda change: change.in_rotation",
        (PLAN, "failed_hard"),
    ),
    Mutant(
        "foreign objects are fought over", "plan.py",
        "\" not in observed.foreign:", "\" is not None:",
        (PLAN, "someone_elses"),
    ),
    Mutant(
        "old revisions stay for ever", "cleanup.py",
        "    gone += old[tick.spec.revision_history_limit :]", "    gone += old[len(old) :]",
        (ROLLOUTS, "more_than_the_limit"),
    ),
    Mutant(
        "a newer spec waits for the old one", "rules_change.py",
        "    if wanted != rollout.candidate.hash:", "    if wanted == '':",
        (ROLLOUTS, "third_revision"),
    ),
    Mutant(
        "crash loops are waited out", "rules_safety.py",
        "CRASHES: Final = 3\n", "CRASHES: Final = 3000\n",
        (ROLLOUTS, "crash_loop"),
    ),
    Mutant(
        "scaleDownDelay is ignored", "scaling.py",
        "        and now - rollout.phase_started_at < spec.canary.scale_down_delay",
        "        and now < rollout.phase_started_at",
        (PLAN, "stay_for_the_delay"),
    ),
    Mutant(
        "the budget stays with the old revision", "plan.py",
        "    elif (now[0], str(now[1])) != wanted:", "    elif str(now[1]) != wanted[1]:",
        (PLAN, "budget_follows"),
    ),
    Mutant(
        "an earlier try's template is used again", "cleanup.py",
        "    return item.number != number and", "    return item.number == -1 and",
        (ROLLOUTS, "requirements_change"),
    ),
    Mutant(
        "ready is enough, no token is needed", "view.py",
        "    return pod.uid in observed.smoked and now", "    return now",
        (ROLLOUTS, "without_a_token"),
    ),
    Mutant(
        "weight on nothing is waited out", "rules_safety.py",
        "    if rollout.verified_weight == 0 or any(", "    if rollout.verified_weight >= 0 or any(",
        (ROLLOUTS, "every_candidate_endpoint_vanishes"),
    ),
    Mutant(
        "stable leaves pod by pod in a switch", "rotation.py",
        "keep = serving if switching", "keep = 0 if switching",
        (BLUE_GREEN, "all_its_pods_enter"),
    ),
    Mutant(
        "a recorded window stands in twice", "record.py",
        "        known = known[1:]\n", "        known = known[:]\n",
        (BLUE_GREEN, "used_up_or_unreadable"),
    ),
    Mutant(
        "a preview approves the promotion", "tick.py",
        "return self.is_final_analysis and self.rollout.verified_weight > 0",
        "return self.is_final_analysis",
        (BLUE_GREEN, "only_the_bake_approves"),
    ),
    Mutant(
        "a missing ConfigMap is a new revision", "rules_start.py",
        "    if missing := missing_configs(tick.spec, tick.observed):",
        "    if missing := '':",
        ("test_core_config_refs.py", "that_is_gone and Idle"),
    ),
)  # fmt: skip
