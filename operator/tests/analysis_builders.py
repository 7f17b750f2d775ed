"""Windows, specs and rollouts for the analysis tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from rampway_operator.core.observed import ArmWindow, Histogram, Window
from rampway_operator.core.spec import (
    Analysis,
    AnalysisStep,
    Canary,
    Comparison,
    Engine,
    Metric,
    Objective,
    Require,
    SetWeightStep,
    Spec,
)
from rampway_operator.core.state import Revision, Rollout
from rampway_operator.core.verdict import Analysed, update

START = datetime(2030, 1, 1, tzinfo=UTC)
EDGES = (*(0.001 * 1.1**i for i in range(122)), float("inf"))
REGRESSION = Comparison(max_regression=Decimal("0.25"))

TAIL = Objective("ttft-tail", Metric.TTFT, tail=Decimal("0.9"), comparison=REGRESSION)
P99 = Objective(
    "ttft-p99",
    Metric.TTFT,
    quantile=Decimal("0.99"),
    comparison=REGRESSION,
    require=Require.NOT_FAIL,
)
HIT_RATE = Objective(
    "hit-rate", Metric.PREFIX_CACHE_HIT_RATE, comparison=Comparison(max_drop=Decimal("0.05"))
)
ERRORS = Objective("errors", Metric.ERROR_RATE, slo_max=Decimal("0.005"), require=Require.NOT_FAIL)
SLO = Objective("e2e", Metric.TTFT, quantile=Decimal("0.9"), slo_max=Decimal("2"))


def histogram(latencies: Sequence[float], edges: tuple[float, ...] = EDGES) -> Histogram:
    """Latencies in seconds, as the buckets of a server."""
    counts = [0.0] * len(edges)
    for latency in latencies:
        counts[next(i for i, edge in enumerate(edges) if latency <= edge)] += 1.0
    return Histogram(edges, tuple(counts))


def arm(
    *,
    requests: float = 50,
    errors: float | None = 0,
    hit: float | None = 0.6,
    tokens: float = 500,
    latencies: Sequence[float] | None = None,
    pods: int = 1,
) -> ArmWindow:
    """One arm in one window; `tokens` are those of one prompt."""
    return ArmWindow(
        pods=pods,
        requests=requests,
        errors=errors,
        prompt_tokens=None if hit is None else requests * tokens,
        cached_tokens=None if hit is None else requests * tokens * hit,
        ttft=None if latencies is None else histogram(latencies),
        inter_token=None,
        e2e=None,
    )


def window(
    candidate: ArmWindow,
    baseline: ArmWindow | None = None,
    stable: ArmWindow | None = None,
    at: int = 0,
    seconds: float = 5.0,
) -> Window:
    begin = START + timedelta(seconds=at * seconds)
    return Window(begin, begin + timedelta(seconds=seconds), candidate, baseline, stable)


def spec(*objectives: Objective, **analysis: object) -> Spec:
    """25 %, analysis, 50 %, analysis, with windows of 5 s."""
    return Spec(
        engine=Engine(image="e"),
        canary=Canary(steps=(SetWeightStep(25), AnalysisStep(), SetWeightStep(50), AnalysisStep())),
        analysis=replace(
            Analysis(interval=timedelta(seconds=5), objectives=objectives),
            **analysis,  # type: ignore[arg-type]
        ),
    )


def rollout(step: int = 1) -> Rollout:
    return Rollout(
        candidate=Revision("candidate", 2, "e"),
        attempt=1,
        started_at=START,
        phase_started_at=START,
        step_index=step,
    )


def after(
    wanted: Spec,
    windows: Sequence[Window],
    state: Rollout | None = None,
    *,
    final: bool = True,
    weight: int = 25,
    one_by_one: bool = True,
) -> tuple[Rollout, Analysed]:
    """The rollout and the last answer after all windows, given one a tick."""
    state = state or rollout()
    ticks = [(w,) for w in windows] if one_by_one else [tuple(windows)]
    found = update(wanted, state, (), weight=weight, final=final)
    for tick in ticks:
        found = update(wanted, state, tick, weight=weight, final=final)
        state = replace(state, evidence=found.evidence, verdicts=found.verdicts)
    return state, found
