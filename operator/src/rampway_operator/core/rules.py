"""Rules that span several fields of a spec, each with the path of the field that breaks it.

It does not know how fields are read. The schema's CEL states most of them, too; an object can have
passed an older schema.
"""

from __future__ import annotations

from datetime import timedelta

from rampway_operator.core.capacity import HALF, surge, unavailable
from rampway_operator.core.durations import format_duration
from rampway_operator.core.parse_strategy import LATENCIES
from rampway_operator.core.spec import (
    Against,
    AnalysisStep,
    Metric,
    Objective,
    SetWeightStep,
    Spec,
)

__all__ = ["broken_rules"]

_STEPS = "spec.strategy.canary.steps"


def broken_rules(spec: Spec) -> list[str]:
    """One sentence with field path a broken rule, of all rules; empty when the spec can be carried out."""
    steps = _steps(spec) if spec.blue_green is None else _pre_promotion(spec)
    faults = [*steps, *_capacity(spec), *_times(spec)]
    names: set[str] = set()
    for index, objective in enumerate(spec.analysis.objectives):
        path = f"spec.analysis.objectives[{index}]"
        if objective.name in names:
            faults.append(f"{path}.name: {objective.name!r} is given twice")
        names.add(objective.name)
        faults += _objective(spec, objective, path)
    return faults


def _steps(spec: Spec) -> list[str]:
    faults, last, names = [], 0, {o.name for o in spec.analysis.objectives}
    for index, step in enumerate(spec.canary.steps):
        path = f"{_STEPS}[{index}]"
        if isinstance(step, SetWeightStep):
            if step.weight < last:
                faults.append(
                    f"{path}.setWeight: {step.weight} is below {last} of an earlier step, weights must not fall"
                )
            if step.weight == 100 and index != len(spec.canary.steps) - 1:
                faults.append(
                    f"{path}.setWeight: 100 must be the last step, use bake to watch it there"
                )
            last = max(last, step.weight)
        elif isinstance(step, AnalysisStep):
            if last == 0:
                faults.append(f"{path}.analysis: needs traffic, put a setWeight step before it")
            if HALF < last < 100 and _judges_hit_rate(spec, step):
                faults.append(
                    f"{path}.analysis: at {last} % no arm has as many pods as the candidate, so a hit rate "
                    f"cannot be compared; name objectives without it, or analyse at {HALF} % or below"
                )
            if step.objectives and not any(
                o.blocking for o in spec.analysis.objectives if o.name in step.objectives
            ):
                faults.append(
                    f"{path}.analysis: none of its objectives has blocking true, it could stop nothing"
                )
            faults += [
                f"{path}.analysis.objectives[{position}]: {name!r} is not in spec.analysis.objectives"
                for position, name in enumerate(step.objectives)
                if name not in names
            ]
    judged = any(isinstance(step, AnalysisStep) for step in spec.canary.steps)
    if judged and not any(o.blocking for o in spec.analysis.objectives):
        faults.append(
            "spec.analysis.objectives: none has blocking true, an analysis step could stop nothing"
        )
    return faults


def _pre_promotion(spec: Spec) -> list[str]:
    """The preview gets other requests than stable, so only absolute limits can be judged on it."""
    assert spec.blue_green is not None, "asked only of a blue-green strategy"
    by_name = {o.name: o for o in spec.analysis.objectives}
    faults = []
    for position, name in enumerate(spec.blue_green.pre_promotion):
        path = f"spec.strategy.blueGreen.prePromotion.objectives[{position}]"
        if name not in by_name:
            faults.append(f"{path}: {name!r} is not in spec.analysis.objectives")
        elif by_name[name].slo_max is None:
            faults.append(
                f"{path}: {name!r} compares with another arm, but the preview gets other requests; "
                "name an objective with slo"
            )
        elif not by_name[name].blocking:
            faults.append(f"{path}: {name!r} has blocking false, it could stop nothing")
    return faults


def _judges_hit_rate(spec: Spec, step: AnalysisStep) -> bool:
    return any(
        objective.metric is Metric.PREFIX_CACHE_HIT_RATE
        and objective.blocking
        and (not step.objectives or objective.name in step.objectives)
        for objective in spec.analysis.objectives
    )


def _capacity(spec: Spec) -> list[str]:
    path = "spec.strategy.canary"
    if surge(spec) > 0:
        return []
    if spec.canary.max_unavailable in (0, "0%"):
        return [
            f"{path}: maxSurge and maxUnavailable are both 0, nothing could change; raise one of them"
        ]
    if spec.replicas == 1:
        return [f"{path}.maxSurge: 0 with replicas 1 would leave no pod to serve, need at least 1"]
    if spec.replicas > 1 and unavailable(spec) == 0:
        fault = (
            f"{path}.maxUnavailable: {spec.canary.max_unavailable} of {spec.replicas} pods is none, "
            "need at least one pod where maxSurge is 0"
        )
        return [fault]
    return []


def _times(spec: Spec) -> list[str]:
    faults, deadline = [], spec.progress_deadline
    if timedelta(seconds=spec.min_ready_seconds) >= deadline:
        faults.append(
            f"spec.minReadySeconds: {spec.min_ready_seconds} is not below progressDeadline "
            f"{format_duration(deadline)}, no rollout could make progress"
        )
    if spec.warmup.prompt_config_map is not None and spec.warmup.max_duration > deadline:
        faults.append(
            f"spec.warmup.budget.maxDuration: {format_duration(spec.warmup.max_duration)} is longer than "
            f"progressDeadline {format_duration(deadline)}, which counts while warming"
        )
    if spec.analysis.interval > spec.analysis.max_duration:
        faults.append(
            f"spec.analysis.interval: {format_duration(spec.analysis.interval)} is longer than "
            f"maxDuration {format_duration(spec.analysis.max_duration)}"
        )
    return faults


def _objective(spec: Spec, objective: Objective, path: str) -> list[str]:
    faults, comparison = [], objective.comparison
    if (comparison is None) == (objective.slo_max is None):
        faults.append(
            f"{path}: needs exactly one of slo and comparison, write two objectives for both"
        )
    if objective.metric in LATENCIES:
        if (objective.quantile is None) == (objective.tail is None):
            faults.append(f"{path}: a latency objective needs exactly one of quantile and tail")
        if comparison is not None and comparison.max_regression is None:
            faults.append(
                f'{path}.comparison: a latency comparison needs maxRegression such as "0.25"'
            )
    elif objective.quantile is not None or objective.tail is not None:
        faults.append(f"{path}: {objective.metric.value} takes neither quantile nor tail")
    if objective.tail is not None and comparison is None:
        faults.append(f"{path}.tail: compares two arms, use quantile with slo")
    if objective.quantile is not None and objective.min_samples * (1 - objective.quantile) < 3:
        faults.append(
            f"{path}.minSamples: {objective.min_samples} x (1 - {objective.quantile}) is below 3, the "
            "quantile would rest on fewer than three requests; raise minSamples"
        )
    if objective.metric is Metric.ERROR_RATE and objective.slo_max is None:
        faults.append(f'{path}: ErrorRate needs slo.max such as "0.005"')
    if objective.metric is Metric.PREFIX_CACHE_HIT_RATE:
        faults += _hit_rate(objective, path)
    if (
        comparison is not None
        and comparison.against is Against.BASELINE
        and not spec.canary.baseline
        and spec.blue_green is None
    ):
        faults.append(
            f"{path}.comparison.against: Baseline needs strategy.canary.baseline.enabled, which is false"
        )
    return faults


def _hit_rate(objective: Objective, path: str) -> list[str]:
    comparison = objective.comparison
    if comparison is None or comparison.max_drop is None:
        return [f'{path}: PrefixCacheHitRate needs comparison with maxDrop such as "0.05"']
    if comparison.against is Against.STABLE:
        fault = (
            f"{path}.comparison.against: the hit rate depends on the number of pods, so Stable is no fair "
            "reference; use Baseline, for which equally many stable pods stand in where it does not fit"
        )
        return [fault]
    return []
