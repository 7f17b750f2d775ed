"""How often bounds miss, with and without grouping windows: `python operator/benchmarks/coverage.py`.

Both arms run the same build, so the true difference is zero; a bound that does not contain it has missed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from decimal import Decimal

import numpy as np
from simulated_load import Arm, Load, simulate

from rampway_operator.core.evidence import at_step, fold
from rampway_operator.core.looks import bounds, inflation_of
from rampway_operator.core.spec import Comparison, Metric, Objective
from rampway_operator.core.state import Evidence

NOMINAL = (0.1, 0.02, 0.003)
EQUAL = Comparison(max_regression=Decimal(0))
OBJECTIVES = (
    Objective("TTFT tail", Metric.TTFT, tail=Decimal("0.9"), comparison=EQUAL),
    Objective("TTFT P99", Metric.TTFT, quantile=Decimal("0.99"), comparison=EQUAL),
    Objective("hit rate", Metric.PREFIX_CACHE_HIT_RATE, comparison=Comparison(max_drop=Decimal(0))),
)


def misses(evidence: Evidence, objective: Objective, inflation: float) -> list[bool]:
    """Per nominal level: below the lower bound, then above the upper bound."""
    found = [bounds(objective, evidence.pending, level, level, inflation) for level in NOMINAL]
    return [b.low > 0.0 for b in found] + [b.high < 0.0 for b in found]


def main() -> int:
    """Print, per objective and length, how often each kind of bound misses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=60, help="simulated runs (60)")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second in all (20)")
    parser.add_argument("--window", type=float, default=5.0, help="seconds a window (5)")
    asked = parser.parse_args()
    load, lengths = Load(rate=asked.rate, window=asked.window), (12, 50, 200)
    half = Arm(pods=2, share=0.5)
    _say("| objective | windows | nominal | windows alone | with groups |\n|---|---|---|---|---|")
    for objective in OBJECTIVES:
        counts = {length: ([0.0] * 6, [0.0] * 6) for length in lengths}
        for seed in range(asked.runs):
            windows = simulate(np.random.default_rng(seed), load, (half, half), max(lengths))
            for length in lengths:
                evidence = replace(at_step(None, objective, 1), voting=True)
                for window in windows[:length]:
                    evidence = fold(objective, evidence, window, max_delta=0.0)
                grown = inflation_of(evidence.pending, evidence.groups)
                for kind, inflation in enumerate((1.0, grown)):
                    for i, missed in enumerate(misses(evidence, objective, inflation)):
                        counts[length][kind][i] += missed / (2.0 * asked.runs)
        for length in lengths:
            alone, grouped = (
                [f"{100 * (c[i] + c[i + 3]):.1f} %" for i in range(3)] for c in counts[length]
            )
            nominal = " / ".join(f"{100 * level:g} %" for level in NOMINAL)
            _say(
                f"| {objective.name} | {length} | {nominal} | {' / '.join(alone)} | "
                f"{' / '.join(grouped)} |"
            )
    return 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
