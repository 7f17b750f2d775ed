"""Windows become evidence: what one objective collects from step to step.

It judges nothing (`looks.py` and `verdict.py` do) and does no statistics beyond sums.
"""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.buckets import edge_at_least, survival
from rampway_operator.core.measures import (
    LATENCIES,
    Part,
    histogram_of,
    latency,
    reference_of,
    requests_behind,
    share,
    unusable,
)
from rampway_operator.core.observed import ArmWindow, Window
from rampway_operator.core.planning import await_steady, edges_are_dead, plan_edges
from rampway_operator.core.spec import Objective
from rampway_operator.core.state import Evidence, Sums
from rampway_operator.core.sums import add, grouped, merged

__all__ = [
    "at_step",
    "definition",
    "fold",
    "samples",
]


def samples(objective: Objective, sums: Sums) -> float:
    """Requests that speak for an objective: the candidate's, or the smaller arm's in a comparison."""
    return sums.rc if objective.comparison is None else min(sums.rc, sums.rr)


def definition(objective: Objective) -> str:
    """One line that changes when evidence so far no longer fits the objective."""
    parts = [objective.metric.value]
    if objective.quantile is not None:
        parts.append(f"quantile {objective.quantile}")
    if objective.tail is not None:
        parts.append(f"tail {objective.tail}")
    if objective.comparison is not None:
        comparison = objective.comparison
        margin = comparison.max_regression, comparison.max_drop
        parts.append(f"against {comparison.against.value} by {margin[0]} or {margin[1]}")
    if objective.slo_max is not None:
        parts.append(f"at most {objective.slo_max}")
    return ", ".join(parts)


def at_step(evidence: Evidence | None, objective: Objective, step: int) -> Evidence:
    """The evidence at the beginning of, or within, step `step`.

    Moving to another step starts the step's own sums and guard anew and asks again whether the arms are
    steady; everything else carries over, but for windows that no look has judged: look before moving.
    Evidence of another definition is dropped.
    """
    described = definition(objective)
    if evidence is None or evidence.definition != described:
        return Evidence(objective=objective.name, definition=described, step=step)
    if evidence.step == step:
        return evidence
    return replace(
        evidence,
        step=step,
        step_sums=Sums(),
        step_alpha_spent=0.0,
        step_level=0.0,
        step_looks=0,
        passed=False,
        pending=Sums(),
        voting=evidence.voting and not objective.steady_only,
        planning=(),
    )


def fold(objective: Objective, evidence: Evidence, window: Window, *, max_delta: float) -> Evidence:
    """The evidence after one more window: planned with, or added to what the next look will judge.

    `max_delta` is how much a hit rate may still rise from block to block in a steady arm. A window that
    the objective cannot use changes nothing; `unusable` says why.
    """
    if unusable(objective, window):
        return evidence
    reference = reference_of(objective, window)
    if objective.steady_only and not evidence.voting:
        arms = window.candidate, window.candidate if reference is None else reference
        return await_steady(evidence, arms, max_delta)
    if reference is None:
        return _fold_absolute(objective, evidence, window.candidate)
    if objective.metric in LATENCIES:
        return _fold_latency(objective, evidence, window, reference)
    candidate = share(objective, window.candidate, candidate=True)
    other = share(objective, reference, candidate=False)
    same = share(objective, reference, candidate=True)
    return _voted(evidence, candidate, other, same.x)


def _voted(
    evidence: Evidence, candidate: Part, reference: Part | None, same: float = 0.0
) -> Evidence:
    one = add(Sums(), candidate, reference, same)
    if one.windows == 0:
        return replace(evidence, voting=True)
    windows = evidence.sums.windows + evidence.pending.windows
    return replace(
        evidence,
        voting=True,
        pending=merged(evidence.pending, one),
        groups=grouped(evidence.groups, windows, one.sc - one.sr, one.v),
    )


def _fold_absolute(objective: Objective, evidence: Evidence, arm: ArmWindow) -> Evidence:
    if objective.metric not in LATENCIES:
        part = share(objective, arm, candidate=True)
        return _voted(evidence, part, None)
    histogram = histogram_of(objective.metric, arm)
    assert histogram is not None, "unusable() has looked"
    edge = edge_at_least(histogram, float(objective.slo_max or 0))
    assert edge is not None, "unusable() has looked"
    above = survival(histogram, edge)
    part = Part(above, histogram.total, requests_behind(objective, arm, histogram), above)
    return _voted(replace(evidence, candidate_edge=edge), part, None)


def _fold_latency(
    objective: Objective, evidence: Evidence, window: Window, reference: ArmWindow
) -> Evidence:
    ours = histogram_of(objective.metric, window.candidate)
    theirs = histogram_of(objective.metric, reference)
    assert ours is not None, "unusable() has looked"
    assert theirs is not None, "unusable() has looked"
    if edges_are_dead(objective, merged(evidence.sums, evidence.pending)):
        evidence = _edges_given_up(evidence)
    if evidence.reference_edge is None or evidence.candidate_edge is None:
        return plan_edges(objective, evidence, window, ours, theirs)
    candidate = latency(objective, window.candidate, ours, evidence.candidate_edge)
    other = latency(objective, reference, theirs, evidence.reference_edge)
    same = latency(objective, reference, theirs, evidence.candidate_edge)
    return _voted(evidence, candidate, other, same.x)


def _edges_given_up(evidence: Evidence) -> Evidence:
    """The evidence without edges and what they counted. Error budget that looks have spent stays spent."""
    return replace(
        evidence,
        voting=False,
        sums=Sums(),
        step_sums=Sums(),
        pending=Sums(),
        groups=(),
        inflation=1.0,
        reference_edge=None,
        candidate_edge=None,
        planning=(),
        fail_level=0.0,
        step_level=0.0,
        pass_level=0.0,
        passed=False,
    )
