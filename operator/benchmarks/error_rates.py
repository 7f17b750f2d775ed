"""How often the analysis is wrong, by simulation: `python operator/benchmarks/error_rates.py`.

Prints false aborts, detection, time to the decision and promotions, beside the rules that other tools
apply to the same simulated windows. `--help` shows how to change load, windows and the number of rollouts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

import numpy as np
from other_rules import mann_whitney, quantile_threshold
from simulated_load import Arm, Load, simulate

from rampway_operator.core.observed import Window
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
from rampway_operator.core.state import Revision, Rollout, Verdict
from rampway_operator.core.verdict import update

START = datetime(2030, 1, 1, tzinfo=UTC)
Phase = tuple[int, int, list[Window]]
"""Index of the step, weight, and the windows that it may last."""


@dataclass(frozen=True, slots=True)
class End:
    """How one rollout ended by one rule, and after how many minutes."""

    verdict: Verdict
    minutes: float


def spec_of(load: Load, max_drop: str) -> Spec:
    """The default objectives at this window length; two analyses, 25 % and 50 %."""
    regression = Comparison(max_regression=Decimal("0.25"))
    return Spec(
        engine=Engine(image="simulated"),
        canary=Canary(steps=(SetWeightStep(25), AnalysisStep(), SetWeightStep(50), AnalysisStep())),
        analysis=Analysis(
            interval=timedelta(seconds=load.window),
            objectives=(
                Objective("ttft-tail", Metric.TTFT, tail=Decimal("0.9"), comparison=regression),
                Objective(
                    "ttft-p99",
                    Metric.TTFT,
                    quantile=Decimal("0.99"),
                    comparison=regression,
                    min_samples=300,
                    require=Require.NOT_FAIL,
                ),
                Objective(
                    "hit-rate",
                    Metric.PREFIX_CACHE_HIT_RATE,
                    comparison=Comparison(max_drop=Decimal(max_drop)),
                    steady_only=True,
                ),
                Objective(
                    "errors", Metric.ERROR_RATE, slo_max=Decimal("0.005"), require=Require.NOT_FAIL
                ),
            ),
        ),
    )


def by_rampway(load: Load, max_drop: str, phases: Sequence[Phase]) -> End:
    """Windows one by one; a step ends with its verdict or, undecided, with its windows."""
    spec = spec_of(load, max_drop)
    rollout = Rollout(Revision("c", 2, "c"), 1, START, START)
    used = 0
    for step, weight, windows in phases:
        rollout = replace(rollout, step_index=step)
        final = step == phases[-1][0]
        outcome = Verdict.UNDECIDED
        for window in windows:
            used += 1
            found = update(spec, rollout, (window,), weight=weight, final=final)
            rollout = replace(rollout, evidence=found.evidence, verdicts=found.verdicts)
            outcome = found.outcome
            if outcome is not Verdict.UNDECIDED:
                break
        if outcome is not Verdict.PASS:
            break
    return End(outcome, used * load.window / 60.0)


def by_other_rule(
    rule: Callable[[Sequence[Window], float], float | None], load: Load, phases: Sequence[Phase]
) -> End:
    """What another rule says in the last step, where the arms are largest; it passes at the end."""
    windows = phases[-1][2]
    failed_at = rule(windows, load.window)
    if failed_at is not None:
        return End(Verdict.FAIL, failed_at)
    return End(Verdict.PASS, len(windows) * load.window / 60.0)


def phases_of(seed: int, load: Load, change: Mapping[str, Any], windows: int) -> list[Phase]:
    """A quarter of the traffic on one pod of four beside a baseline pod, then half on two."""
    rng = np.random.default_rng(seed)
    quarter, half = Arm(pods=1, share=0.25), Arm(pods=2, share=0.5)
    changed = [replace(arm, **change) for arm in (quarter, half)]
    return [
        (1, 25, simulate(rng, load, (changed[0], quarter, half), windows)),
        (3, 50, simulate(rng, load, (changed[1], half), windows)),
    ]


RULES = ("Rampway", "P99 threshold each minute", "Mann-Whitney of P99 (Kayenta)")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of candidate."""

    name: str
    change: Mapping[str, Any]
    max_drop: str = "0.05"
    others: bool = False
    """Whether the other rules, which see latency only, are shown too."""


SCENARIOS = (
    Scenario("identical builds", {}, others=True),
    Scenario("1.1x slower (allowed)", {"slower": 1.1}, others=True),
    Scenario("1.5x slower", {"slower": 1.5}, others=True),
    Scenario("hit rate -0.05 (the margin)", {"hit_drop": 0.05}),
    Scenario("hit rate -0.05, maxDrop 0.01", {"hit_drop": 0.05}, max_drop="0.01"),
    Scenario("hit rate -0.10", {"hit_drop": 0.10}),
    Scenario("2 % errors, limit 0.5 %", {"error_rate": 0.02}),
)


def run(task: tuple[int, Load, Scenario, int]) -> tuple[End, ...]:
    """One rollout by every rule, on the same windows."""
    seed, load, scenario, windows = task
    phases = phases_of(seed, load, scenario.change, windows)
    return (
        by_rampway(load, scenario.max_drop, phases),
        by_other_rule(quantile_threshold, load, phases),
        by_other_rule(mann_whitney, load, phases),
    )


def row(name: str, rule: str, ends: Sequence[End]) -> str:
    """One line of the table."""

    def share(verdict: Verdict) -> str:
        chosen = [end.minutes for end in ends if end.verdict is verdict]
        took = f" ({median(chosen):.0f} min)" if chosen else ""
        return f"{100 * len(chosen) / len(ends):.0f} %{took}"

    undecided = sum(end.verdict is Verdict.UNDECIDED for end in ends)
    return (
        f"| {name} | {rule} | {share(Verdict.FAIL)} | {share(Verdict.PASS)} | "
        f"{100 * undecided / len(ends):.0f} % |"
    )


def arguments(argv: Iterable[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=40, help="rollouts a scenario (40)")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second in all (20)")
    parser.add_argument("--window", type=float, default=5.0, help="seconds a window (5)")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes a step at most (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=1, help="of the first rollout (1)")
    parser.add_argument(
        "--scenario", default="", help="only scenarios with this text in their name"
    )
    parser.add_argument(
        "--spread-sessions", action="store_true", help="turns of a session go to any arm"
    )
    return parser.parse_args(None if argv is None else list(argv))


def main() -> int:
    """Run all scenarios and print the table as Markdown."""
    asked = arguments()
    load = Load(rate=asked.rate, window=asked.window, sessions=not asked.spread_sessions)
    windows = round(asked.minutes * 60.0 / asked.window)
    began = time.monotonic()
    _say(
        f"{asked.rollouts} rollouts a scenario, {asked.rate:g} requests/s, windows of "
        f"{asked.window:g} s, two analyses of at most {asked.minutes:g} min\n\n"
        "| candidate | rule | aborted (median) | promoted (median) | undecided |\n|---|---|---|---|---|"
    )
    with ProcessPoolExecutor(asked.jobs) as pool:
        for scenario in SCENARIOS:
            if asked.scenario not in scenario.name:
                continue
            tasks = [(asked.seed + i, load, scenario, windows) for i in range(asked.rollouts)]
            ends = list(zip(*pool.map(run, tasks, chunksize=4), strict=True))
            shown = len(RULES) if scenario.others else 1
            for rule, found in list(zip(RULES, ends, strict=True))[:shown]:
                _say(row(scenario.name, rule, found))
    _say(f"\n{time.monotonic() - began:.0f} s")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
