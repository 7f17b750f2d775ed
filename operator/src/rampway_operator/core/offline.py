"""The judgement of a rollout on recorded windows, and how often it would abort equal builds.

It is the operator's own judgement (`verdict.update`), step by step, on windows that came before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rampway_operator.core.looks import Bounds
from rampway_operator.core.observed import Arm, Window
from rampway_operator.core.recording import PodWindow, as_window
from rampway_operator.core.spec import AnalysisStep, Spec
from rampway_operator.core.state import Evidence, Revision, Rollout, Verdict, VerdictRecord
from rampway_operator.core.statistics import clopper_pearson
from rampway_operator.core.verdict import judged, update

__all__ = ["Judgement", "LookPoint", "SelfTest", "judge", "self_test"]

WEIGHT = 50
"""Comparisons are judged below 100 %; which share it is makes no difference to a verdict."""
BLOCK = 64
"""Windows that stay together when an A/A test deals the pods anew: as long as what groups of windows see."""


@dataclass(frozen=True, slots=True)
class LookPoint:
    """What one objective's look said, in the units of its score; `at` is the end of its last window."""

    at: datetime
    objective: str
    verdict: Verdict
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class Judgement:
    """The end of the path, and every look on it."""

    outcome: Verdict
    used: int
    """Windows until the outcome; all of them when it is Undecided."""
    verdicts: tuple[VerdictRecord, ...]
    evidence: tuple[Evidence, ...]
    looks: tuple[LookPoint, ...]


@dataclass(frozen=True, slots=True)
class SelfTest:
    """How often equal builds were aborted, promoted or left undecided."""

    aborted: int
    promoted: int
    undecided: int

    @property
    def repetitions(self) -> int:
        """All of them."""
        return self.aborted + self.promoted + self.undecided

    @property
    def aborted_at_most(self) -> float:
        """Upper 95 % bound of the share of aborted rollouts (exact)."""
        return clopper_pearson(float(self.aborted), float(self.repetitions), 0.05, 0.05)[1]


def judge(spec: Spec, windows: Sequence[Window], *, stop: bool = True) -> Judgement:
    """The last analysis before 100 %, on these windows one by one, as the operator judges it.

    Ends with the first Fail or Pass, unless `stop` is False: then all windows are looked at.
    """
    steps = [i for i, step in enumerate(spec.canary.steps) if isinstance(step, AnalysisStep)]
    start = windows[0].started_at if windows else datetime.fromtimestamp(0, UTC)
    rollout = Rollout(
        Revision("candidate", 2, ""), 1, start, start, step_index=max(steps, default=0)
    )
    looks: list[LookPoint] = []
    outcome, used = Verdict.UNDECIDED, 0
    for window in windows:
        before = {item.objective: item.looks for item in rollout.evidence}
        found = update(spec, rollout, (window,), weight=WEIGHT, final=True)
        rollout = replace(rollout, evidence=found.evidence, verdicts=found.verdicts)
        looks += _looks(spec, found.evidence, before, window.ended_at)
        outcome, used = found.outcome, used + 1
        if stop and outcome is not Verdict.UNDECIDED:
            break
    return Judgement(outcome, used, rollout.verdicts, rollout.evidence, tuple(looks))


def _looks(
    spec: Spec, evidence: Sequence[Evidence], before: dict[str, int], at: datetime
) -> list[LookPoint]:
    points = []
    for objective, item in zip(spec.analysis.objectives, evidence, strict=True):
        if item.looks <= before.get(objective.name, 0):
            continue
        verdict, bounds = judged(objective, item)
        if bounds is not None:
            points.append(LookPoint(at, objective.name, verdict, bounds))
    return points


def self_test(
    spec: Spec, recorded: Sequence[PodWindow], pods: Sequence[str], *, repetitions: int, seed: int
) -> SelfTest:
    """A/A: equal pods dealt to two arms at random, again and again, and judged as a rollout.

    Each repetition splits the pods in halves, starts at a random window, and swaps the halves at random
    from block to block. Neither can matter to equal builds, so every abort is a false one. Repetitions
    share one recording: they tell of its load, not of others. Raises ValueError with fewer than two pods.
    """
    if len(pods) < 2:
        raise ValueError(
            f"an A/A test deals pods to two arms: got {len(pods)} pods, need 2 or more"
        )
    ends: Counter[Verdict] = Counter()
    for repetition in range(repetitions):
        rng = random.Random(f"{seed}/{repetition}")  # noqa: S311 a simulation, not a secret
        ends[judge(spec, _dealt(rng, recorded, list(pods))).outcome] += 1
    return SelfTest(ends[Verdict.FAIL], ends[Verdict.PASS], ends[Verdict.UNDECIDED])


def _dealt(rng: random.Random, recorded: Sequence[PodWindow], pods: list[str]) -> list[Window]:
    rng.shuffle(pods)
    halves = pods[: len(pods) // 2], pods[len(pods) // 2 : 2 * (len(pods) // 2)]
    start, swapped, windows = rng.randrange(len(recorded)), False, []
    for i, window in enumerate([*recorded[start:], *recorded[:start]]):
        if i % BLOCK == 0:
            swapped = rng.random() < 0.5
        candidate, stable = reversed(halves) if swapped else halves
        arms = dict.fromkeys(candidate, Arm.CANDIDATE) | dict.fromkeys(stable, Arm.STABLE)
        dealt = as_window(window, arms)
        if dealt is not None and arms.keys() <= window.pods.keys():
            windows.append(dealt)
    return windows
