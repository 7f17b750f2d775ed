"""The phase Warming: prompts to new pods until their prefix caches are as warm as they get.

It does not know how prompts are sent.
"""

from __future__ import annotations

from typing import Any

from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Pool
from rampway_operator.core.spec import OnUndecided
from rampway_operator.core.state import EndReason, Phase
from rampway_operator.core.steps import move_traffic, pods_are_there
from rampway_operator.core.tick import SOON, Tick

__all__ = ["on_warming"]


def on_warming(tick: Tick) -> Move:  # noqa: PLR0911 - one exit an outcome
    """Rounds of the prompts until two in a row hit alike, on every arm that has cold pods."""
    cold, progress, warmup = tick.cold, tick.warmup, tick.spec.warmup
    missing = tick.aim.pods.candidate - len(tick.candidates)
    if missing > tick.unproven:
        return move_traffic(
            tick, tick.rollout.desired_weight, "PodsLost", "a candidate pod cannot serve any more"
        )
    if missing > 0:
        return tick.stay(f"a real token of {missing} pods, asked again", after=SOON)
    if not cold:
        return pods_are_there(tick, "Warm", "no pod is cold")
    rounds = [progress.candidate_rounds] if any(p.pool is Pool.MAIN for p in cold) else []
    if any(p.pool is Pool.BASELINE for p in cold):
        rounds.append(progress.baseline_rounds)
    warm: dict[str, Any] = {
        "warm": True,
        "warmed_until": max(p.created_at for p in (*tick.candidates, *tick.baselines)),
    }
    if not progress.prompts_error and all(_steady(r, float(warmup.max_delta)) for r in rounds):
        rates = ", ".join(f"{r[-1]:.3f}" for r in rounds)
        told = f"token hit rate {rates} after {progress.requests_sent} requests"
        return pods_are_there(tick, "Warm", told, **warm)
    told = _progress(tick, rounds)
    if tick.in_phase < warmup.max_duration and progress.requests_sent < warmup.max_requests:
        return tick.stay(told, after=SOON)
    match warmup.on_timeout:
        case OnUndecided.PROCEED:
            return pods_are_there(
                tick, "WarmupTimeout", f"went on without a steady cache: {told}", **warm
            )
        case OnUndecided.ABORT:
            return tick.roll_back(EndReason.WARMUP_FAILED, told)
        case OnUndecided.PAUSE:
            return tick.pause("WarmupTimeout", told, Phase.WARMING)


def _steady(rounds: tuple[float, ...], max_delta: float) -> bool:
    return len(rounds) >= 2 and abs(rounds[-1] - rounds[-2]) <= max_delta


def _progress(tick: Tick, rounds: list[tuple[float, ...]]) -> str:
    progress = tick.warmup
    if progress.prompts_error:
        return f"warm-up prompts cannot be used: {progress.prompts_error}"
    shown = ", ".join("/".join(f"{rate:.3f}" for rate in r[-2:]) or "none yet" for r in rounds)
    trouble = f", {progress.failures} failed: {progress.last_error}" if progress.failures else ""
    return (
        f"{progress.requests_sent} of at most {tick.spec.warmup.max_requests} warm-up requests, "
        f"hit rates of the last rounds {shown}{trouble}"
    )
