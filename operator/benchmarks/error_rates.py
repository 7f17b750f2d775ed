"""How often the analysis is wrong, by simulation: `make bench-analysis`.

Rolls out identical and worse candidates under several loads and prints, for our rule and for the rules that
other tools apply to the same windows, how many were aborted and promoted and how long that took.
`--help` shows how to change loads, windows and the number of rollouts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from other_rules import OTHER_RULES
from rates_plot import rates_svg
from simulated_load import Arm, Load, simulate
from trace_load import TraceLoad, replay

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
OURS = "Rampway"
Phase = tuple[int, int, list[Window]]
"""Index of the step, weight, and the windows that it may last."""


@dataclass(frozen=True, slots=True)
class End:
    """How one rollout ended by one rule, and after how many minutes."""

    verdict: Verdict
    minutes: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """One load. `hits` says whether it has a prefix cache to judge."""

    name: str
    load: Load | TraceLoad
    hits: bool = True


@dataclass(frozen=True, slots=True)
class Candidate:
    """One kind of candidate."""

    name: str
    change: Mapping[str, Any] = field(default_factory=dict)
    max_drop: str = "0.05"
    others: bool = True
    """Whether the other rules, which see latency only, are shown too."""


CANDIDATES = (
    Candidate("identical"),
    Candidate("1.5× slower", {"slower": 1.5}),
    Candidate("hit rate −0.05", {"hit_drop": 0.05}, max_drop="0.01", others=False),
)


def scenarios(rate: float, window: float, traces: Path | None) -> tuple[Scenario, ...]:
    """All loads at `rate` requests/s; those of the traces only where the folder is given.

    Mooncake's prompts have 12,000 tokens on average: they run on a B200, at three quarters of the rate.
    """
    busy = Load(rate=rate, window=window)
    queues = (
        Scenario("M/G/k, light", replace(busy, utilisation=0.3, burst_factor=1.0)),
        Scenario("M/G/k, light, bursts", replace(busy, utilisation=0.3)),
        Scenario("M/G/k, busy, bursts", busy),
        Scenario("M/G/k, busy, turns spread", replace(busy, sessions=False)),
    )
    if traces is None:
        return queues
    folder = str(traces)
    mooncake = f"{folder}/mooncake_conversation_trace.jsonl"
    return (
        *queues,
        Scenario("Mooncake, B200", TraceLoad(mooncake, 0.75 * rate, window, gpu="b200")),
        Scenario("Azure chat, H100", TraceLoad(f"{folder}/azure_llm_2023_conv.csv", rate, window), hits=False),
        Scenario("Azure code, H100", TraceLoad(f"{folder}/azure_llm_2023_code.csv", rate, window), hits=False),
    )  # fmt: skip


def spec_of(load: Load | TraceLoad, max_drop: str, *, hits: bool) -> Spec:
    """The default objectives at this window length; two analyses, 25 % and 50 %."""
    regression = Comparison(max_regression=Decimal("0.25"))
    hit_rate = Objective(
        "hit-rate",
        Metric.PREFIX_CACHE_HIT_RATE,
        comparison=Comparison(max_drop=Decimal(max_drop)),
        steady_only=True,
    )
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
                *((hit_rate,) if hits else ()),
                Objective(
                    "errors", Metric.ERROR_RATE, slo_max=Decimal("0.005"), require=Require.NOT_FAIL
                ),
            ),
        ),
    )


def by_rampway(spec: Spec, phases: Sequence[Phase]) -> End:
    """Windows one by one; a step ends with its verdict or, undecided, with its windows."""
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
    return End(outcome, used * spec.analysis.interval.total_seconds() / 60.0)


def by_other_rule(rule: str, seconds: float, phases: Sequence[Phase]) -> End:
    """What another rule says in the last step, where the arms are largest; it passes at the end."""
    windows = phases[-1][2]
    failed_at = OTHER_RULES[rule](windows, seconds)
    if failed_at is not None:
        return End(Verdict.FAIL, failed_at)
    return End(Verdict.PASS, len(windows) * seconds / 60.0)


def phases_of(
    seed: int, load: Load | TraceLoad, change: Mapping[str, Any], windows: int
) -> list[Phase]:
    """A quarter of the traffic on one pod of four beside a baseline pod, then half on two."""
    rng = np.random.default_rng(seed)
    quarter, half = Arm(pods=1, share=0.25), Arm(pods=2, share=0.5)
    changed = [replace(arm, **change) for arm in (quarter, half)]

    def windows_of(*arms: Arm) -> list[Window]:
        if isinstance(load, TraceLoad):
            return replay(rng, load, arms, windows)
        return simulate(rng, load, arms, windows)

    return [
        (1, 25, windows_of(changed[0], quarter, half)),
        (3, 50, windows_of(changed[1], half)),
    ]


def run(task: tuple[int, Scenario, Candidate, int]) -> dict[str, End]:
    """One rollout by every rule, on the same windows."""
    seed, scenario, candidate, windows = task
    phases = phases_of(seed, scenario.load, candidate.change, windows)
    spec = spec_of(scenario.load, candidate.max_drop, hits=scenario.hits)
    ends = {OURS: by_rampway(spec, phases)}
    if candidate.others:
        ends |= {rule: by_other_rule(rule, scenario.load.window, phases) for rule in OTHER_RULES}
    return ends


def row(scenario: str, candidate: str, rule: str, ends: Sequence[End]) -> str:
    """One line of the table."""

    def share(verdict: Verdict) -> str:
        chosen = [end.minutes for end in ends if end.verdict is verdict]
        took = f" ({median(chosen):.0f} min)" if chosen else ""
        return f"{100 * len(chosen) / len(ends):.0f} %{took}"

    undecided = sum(end.verdict is Verdict.UNDECIDED for end in ends)
    return (
        f"| {scenario} | {candidate} | {rule} | {share(Verdict.FAIL)} | {share(Verdict.PASS)} | "
        f"{100 * undecided / len(ends):.0f} % |"
    )


def arguments(argv: Iterable[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rollouts", type=int, default=40, help="rollouts a line (40)")
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second in all (8)")
    parser.add_argument("--window", type=float, default=15.0, help="seconds a window (15)")
    parser.add_argument("--minutes", type=float, default=20.0, help="minutes a step at most (20)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    parser.add_argument("--seed", type=int, default=1, help="of the first rollout (1)")
    parser.add_argument("--scenario", default="", help="only loads with this text in their name")
    parser.add_argument("--candidate", default="", help="only candidates with this text")
    parser.add_argument("--traces", type=Path, help="folder of the Mooncake and Azure traces")
    parser.add_argument("--svg", type=Path, help="where to write the plot")
    return parser.parse_args(None if argv is None else list(argv))


def main() -> int:
    """Run all scenarios and print the table as Markdown."""
    asked = arguments()
    windows = round(asked.minutes * 60.0 / asked.window)
    began = time.monotonic()
    _say(
        f"{asked.rollouts} rollouts a line, {asked.rate:g} requests/s, windows of "
        f"{asked.window:g} s, two analyses of at most {asked.minutes:g} min\n\n"
        "| load | candidate | rule | aborted (median) | promoted (median) | undecided |\n"
        "|---|---|---|---|---|---|"
    )
    aborted: dict[tuple[str, str, str], float] = {}
    with ProcessPoolExecutor(asked.jobs) as pool:
        for scenario in scenarios(asked.rate, asked.window, asked.traces):
            for candidate in CANDIDATES:
                wanted = asked.scenario in scenario.name and asked.candidate in candidate.name
                if not wanted or ("hit_drop" in candidate.change and not scenario.hits):
                    continue
                tasks = [
                    (asked.seed + i, scenario, candidate, windows) for i in range(asked.rollouts)
                ]
                rollouts = list(pool.map(run, tasks, chunksize=2))
                for rule in rollouts[0]:
                    ends = [ends[rule] for ends in rollouts]
                    _say(row(scenario.name, candidate.name, rule, ends))
                    failed = sum(end.verdict is Verdict.FAIL for end in ends)
                    aborted[scenario.name, candidate.name, rule] = failed / len(ends)
    if asked.svg is not None:
        asked.svg.write_text(rates_svg(aborted, OURS), encoding="utf-8")
    _say(f"\n{time.monotonic() - began:.0f} s")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
