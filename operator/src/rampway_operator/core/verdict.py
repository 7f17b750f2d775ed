"""What the windows say of every objective, and what that means for the step.

It does not know how windows were measured, nor what the rollout does with its answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rampway_operator.core.evidence import at_step, fold, samples
from rampway_operator.core.looks import (
    MIN_REQUESTS,
    MIN_WINDOWS,
    Bounds,
    Budgets,
    bounds,
    budgets,
    expected,
    look,
    look_is_due,
    margin,
)
from rampway_operator.core.measures import unusable
from rampway_operator.core.observed import Window
from rampway_operator.core.planning import PLANNING_EXCEEDANCES, beyond, buckets_end_too_low
from rampway_operator.core.spec import Objective, Require, Spec
from rampway_operator.core.state import Evidence, Rollout, Verdict, VerdictRecord
from rampway_operator.core.statistics import normal_quantile, samples_needed
from rampway_operator.core.sums import merged
from rampway_operator.core.wording import duration, in_words, natural, seen_with_power, title

__all__ = ["Analysed", "judged", "update"]

WHOLE = 100
"""The weight at which no reference arm is left."""
_POWER = 0.8


@dataclass(frozen=True, slots=True)
class Analysed:
    """The evidence with the new windows folded in, and what it says.

    Store `evidence` and `verdicts` in the rollout. `outcome`: FAIL if a blocking objective failed, PASS if
    the step's objectives have what this step asks of them, else UNDECIDED. `failing` names the objectives
    behind a FAIL. `message` is one sentence with numbers, for status and the event.
    """

    evidence: tuple[Evidence, ...]
    verdicts: tuple[VerdictRecord, ...]
    outcome: Verdict
    failing: tuple[str, ...]
    message: str


def update(
    spec: Spec,
    rollout: Rollout,
    windows: Sequence[Window],
    *,
    weight: int,
    final: bool,
    objectives: tuple[str, ...] = (),
) -> Analysed:
    """Evidence, verdicts and outcome of the current step after `windows`, oldest first; `()` is fine.

    `weight` is the verified share of the candidate in percent; at 100 (the bake) only objectives with an
    absolute limit are judged. `final` says that this is the last analysis before 100 %, which needs what
    `require` asks; earlier ones need no Fail and `minSamples` new samples. `objectives` names those that
    decide this step (empty: all); the others collect evidence. Steps are told apart by
    `rollout.step_index`: the evidence of the step's own windows starts anew when it moves.
    """
    plan = budgets(spec)
    before = {evidence.objective: evidence for evidence in rollout.evidence}
    evidence, verdicts = [], []
    failing: list[VerdictRecord] = []
    waiting: list[VerdictRecord] = []
    for objective in spec.analysis.objectives:
        judges = objective.comparison is None or weight < WHOLE
        known = _settled(objective, before.get(objective.name), rollout.step_index, plan)
        for window in windows if judges else ():
            known = fold(objective, known, window, max_delta=float(spec.warmup.max_delta))
            if look_is_due(objective, known):
                known = look(objective, known, plan, final=final)
        record = _record(spec, objective, known, windows if judges else (), final=final)
        evidence.append(known)
        verdicts.append(record)
        named = not objectives or objective.name in objectives
        if not (judges and named and objective.blocking):
            continue
        if record.verdict is Verdict.FAIL:
            failing.append(record)
        elif not _holds(objective, known, record.verdict, final=final):
            waiting.append(record)
    if failing:
        outcome, told = Verdict.FAIL, failing
    elif waiting:
        outcome, told = Verdict.UNDECIDED, waiting
    else:
        outcome, told = Verdict.PASS, verdicts
    return Analysed(
        evidence=tuple(evidence),
        verdicts=tuple(verdicts),
        outcome=outcome,
        failing=tuple(record.objective for record in failing),
        message=_told(told, outcome),
    )


def judged(objective: Objective, evidence: Evidence) -> tuple[Verdict, Bounds | None]:
    """The verdict of the last look, and its bounds; a pure function of what status stores.

    Fail: the lower bound over all steps, or over the current step alone, lies above the margin. Pass: the
    upper bound lies below it, now or at an earlier look of this step, and the current step alone does not
    point the other way. Undecided, and no bounds, before the first look: no data is never a value.
    """
    if evidence.looks == 0 or evidence.fail_level <= 0.0 or evidence.pass_level <= 0.0:
        return Verdict.UNDECIDED, None
    limit = margin(objective)
    levels = evidence.fail_level, evidence.pass_level
    found = bounds(objective, evidence.sums, *levels, evidence.inflation)
    if found.low > limit:
        return Verdict.FAIL, found
    levels = evidence.step_level or evidence.fail_level, evidence.pass_level
    step = bounds(objective, evidence.step_sums, *levels, evidence.inflation)
    if evidence.step_level > 0.0 and step.low > limit:
        return Verdict.FAIL, step
    if (found.high < limit or evidence.passed) and step.estimate < limit:
        return Verdict.PASS, found
    return Verdict.UNDECIDED, found


def _settled(objective: Objective, evidence: Evidence | None, step: int, plan: Budgets) -> Evidence:
    """The evidence at `step`; what an earlier step left unjudged is judged before it is closed."""
    if evidence is not None and evidence.step != step and evidence.pending.windows > 0:
        total = merged(evidence.sums, evidence.pending)
        if total.windows >= MIN_WINDOWS:
            evidence = look(objective, evidence, plan, final=False)
    return at_step(evidence, objective, step)


def _holds(objective: Objective, evidence: Evidence, verdict: Verdict, *, final: bool) -> bool:
    """Whether the step has what it needs of an objective that has not failed.

    Always: `minSamples` new requests in this step and a look at them. In the last analysis also a Pass,
    where the objective asks for one.
    """
    step = evidence.step_sums
    if evidence.step_looks == 0 or samples(objective, step) < objective.min_samples:
        return False
    return not final or objective.require is Require.NOT_FAIL or verdict is Verdict.PASS


def _record(
    spec: Spec,
    objective: Objective,
    evidence: Evidence,
    windows: Sequence[Window],
    *,
    final: bool,
) -> VerdictRecord:
    verdict, found = judged(objective, evidence)
    shown = None if found is None else natural(objective, evidence, found)
    needed = _needed(objective, evidence, verdict, found, final=final)
    if shown is None or found is None:
        message = f"{title(objective)}: {_why_nothing(objective, evidence, windows)}"
    else:
        message = in_words(objective, evidence, shown, verdict)
        if verdict is Verdict.UNDECIDED:
            reach = normal_quantile(1.0 - evidence.fail_level) + normal_quantile(_POWER)
            message += f"; {seen_with_power(objective, evidence, found, reach)}"
    message += _progress(spec, evidence, needed)
    sums = evidence.sums
    return VerdictRecord(
        objective=objective.name,
        verdict=verdict,
        n=round(sums.rc),
        n_reference=round(sums.rr),
        windows=sums.windows,
        estimate=None if shown is None else shown.estimate,
        low=None if shown is None else _finite(shown.low),
        high=None if shown is None else _finite(shown.high),
        margin=_shown_margin(objective) if shown is None else shown.margin,
        alpha_spent=evidence.alpha_spent,
        candidate_value=None if shown is None else shown.candidate,
        reference_value=None if shown is None else shown.reference,
        needed=needed,
        message=message,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown_margin(objective: Objective) -> float:
    """The margin as asked, before buckets are known."""
    comparison = objective.comparison
    if comparison is not None and comparison.max_regression is not None:
        return 1.0 + float(comparison.max_regression)
    return margin(objective)


def _why_nothing(objective: Objective, evidence: Evidence, windows: Sequence[Window]) -> str:
    """Why there is no estimate yet."""
    if windows and (why := unusable(objective, windows[-1])):
        return f"cannot be judged: {why}"
    pending = evidence.pending
    if evidence.voting or pending.windows:
        return (
            f"collecting, {pending.windows} of {MIN_WINDOWS} windows and "
            f"{pending.rc:,.0f} of {MIN_REQUESTS} requests for the first look"
        )
    if objective.steady_only:
        return "waiting until the caches of both arms are steady; these windows do not vote"
    if evidence.planning and buckets_end_too_low(objective, evidence):
        return (
            f"{_shown_margin(objective):.2f}× the reference's quantile lies beyond the engine's last bucket: "
            "it is overloaded, or its histogram needs higher buckets"
        )
    if evidence.planning:
        return (
            f"choosing edges from {sum(evidence.planning):,.0f} of "
            f"{PLANNING_EXCEEDANCES / beyond(objective):,.0f} reference requests; these do not vote"
        )
    return "no data yet"


def _needed(
    objective: Objective,
    evidence: Evidence,
    verdict: Verdict,
    found: Bounds | None,
    *,
    final: bool,
) -> int | None:
    """Candidate requests in all at which the step is likely to have what it needs; None if it has.

    Assumes for comparisons that the candidate is like the reference, for limits that its share stays.
    """
    if verdict is Verdict.FAIL or _holds(objective, evidence, verdict, final=final):
        return None
    sums, step = evidence.sums, merged(evidence.step_sums, evidence.pending)
    missing = max(1.0, objective.min_samples - samples(objective, step))
    least = sums.rc + evidence.pending.rc + missing
    if not final or objective.require is Require.NOT_FAIL or found is None:
        return math.ceil(least)
    truth = expected(sums) if objective.comparison is not None else found.estimate
    distance = margin(objective) - truth
    wanted = samples_needed(sums.rc, found.error, distance, evidence.pass_level, _POWER)
    return math.ceil(max(least, wanted)) if math.isfinite(wanted) else None


def _progress(spec: Spec, evidence: Evidence, needed: int | None) -> str:
    """`; 656 of 1,312 requests, about 9 min left`: from the rate of the current step."""
    if needed is None:
        return ""
    have = evidence.sums.rc + evidence.pending.rc
    recent = merged(evidence.step_sums, evidence.pending)
    text = f"; {have:,.0f} of {needed:,} requests"
    if recent.windows == 0 or recent.rc <= 0.0 or needed <= have:
        return text
    seconds = recent.windows * spec.analysis.interval.total_seconds()
    left = (needed - have) * seconds / recent.rc
    longest = spec.analysis.max_duration.total_seconds()
    warning = f", longer than maxDuration {duration(longest)}" if left > longest else ""
    return f"{text}, about {duration(left)} left{warning}"


def _told(records: Sequence[VerdictRecord], outcome: Verdict) -> str:
    if not records:
        return f"{outcome.value}: no objectives"
    return f"{outcome.value}: " + " | ".join(record.message for record in records)
