"""Two revisions under one load, as paired windows: queues with bursts, heavy tails and sticky sessions.

It knows nothing of verdicts. Everything random comes from the generator that is passed in.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from rampway_operator.core.observed import ArmWindow, Histogram, Window

__all__ = ["EDGES", "Arm", "Load", "simulate", "windows_of"]

EDGES = (*(0.001 * 1.1**i for i in range(122)), float("inf"))
"""Bucket edges of the Rampway server: factor 1.1 from 1 ms to 100 s."""

SLOTS = 4
"""Prefills that a pod runs at once."""
MEAN_WORK = 256.0
"""Mean of the work of a request in tokens, by the distributions below."""

_INNER = np.array(EDGES[:-1])
_START = datetime(2030, 1, 1, tzinfo=UTC)
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do. Rates are per second and for all arms together."""

    rate: float
    window: float = 5.0
    burst_factor: float = 2.5
    burst_seconds: float = 20.0
    burst_share: float = 0.15
    utilisation: float = 0.6
    sessions: bool = True
    """Whether a session stays with one arm; False spreads its turns over both."""


@dataclass(frozen=True, slots=True)
class Arm:
    """How one revision serves. `slower` multiplies its work, `hit_drop` is taken off its hit rate."""

    pods: int
    share: float
    slower: float = 1.0
    hit_drop: float = 0.0
    error_rate: float = 0.001


def simulate(
    rng: np.random.Generator, load: Load, arms: tuple[Arm, ...], windows: int
) -> list[Window]:
    """`windows` windows of (candidate, baseline, stable), or of (candidate, stable)."""
    times, sessions = _arrivals(rng, load, windows * load.window)
    shares = np.array([arm.share for arm in arms])
    pick = rng.random(int(sessions.max(initial=0)) + 1 if load.sessions else len(times))
    owner = np.searchsorted(np.cumsum(shares), pick[sessions] if load.sessions else pick)
    habit = rng.beta(3.0, 2.0, int(sessions.max(initial=0)) + 1)
    sides = []
    for i, arm in enumerate(arms):
        mine = owner == i
        sides.append(_serve(rng, load, arm, times[mine], habit[sessions[mine]], windows))
    seconds = timedelta(seconds=load.window)
    return [
        Window(
            started_at=_START + j * seconds,
            ended_at=_START + (j + 1) * seconds,
            candidate=parts[0],
            baseline=parts[1] if len(parts) == 3 else None,
            stable=parts[-1],
        )
        for j, parts in enumerate(zip(*sides, strict=True))
    ]


def _arrivals(
    rng: np.random.Generator, load: Load, seconds: float
) -> tuple[Floats, NDArray[np.int64]]:
    """Arrival times and session numbers: sessions of about five turns start in bursts."""
    turns, gap = 5.0, 15.0
    bins = np.arange(0.0, seconds + 1.0)
    level, state, rates = load.burst_share, False, []
    for _ in bins:
        leave = 1.0 / load.burst_seconds
        enter = leave * level / (1.0 - level)
        state = rng.random() >= leave if state else rng.random() < enter
        rates.append(load.burst_factor if state else 1.0)
    mean = 1.0 + (load.burst_factor - 1.0) * level
    starts = rng.poisson(np.array(rates) * load.rate / mean / turns)
    begin = np.repeat(bins, starts) + rng.random(int(starts.sum()))
    length = rng.geometric(1.0 / turns, len(begin))
    session = np.repeat(np.arange(len(begin)), length)
    first = np.repeat(np.cumsum(length) - length, length)
    waits = rng.exponential(gap, len(session))
    waits[np.arange(len(session)) == first] = 0.0
    elapsed = np.cumsum(waits)
    times = begin[session] + elapsed - elapsed[first]
    kept = times < seconds
    order = np.argsort(times[kept])
    return times[kept][order], session[kept][order]


def _serve(
    rng: np.random.Generator,
    load: Load,
    arm: Arm,
    times: Floats,
    habit: Floats,
    windows: int,
) -> list[ArmWindow]:
    """Each pod serves SLOTS prefills at once, first come first served; a prefill takes as long as the
    tokens that were not cached.
    """
    n = len(times)
    prompt = np.round(rng.lognormal(6.2, 0.7, n))
    hit = np.clip(habit + rng.normal(0.0, 0.1, n), 0.0, 0.98)
    cached = np.round(prompt * np.clip(hit - arm.hit_drop, 0.0, 0.98))
    # The cost of fewer hits is left out of the latency: each scenario has one cause.
    service = prompt * (1.0 - hit) * rng.lognormal(-0.1, 0.45, n)
    per_slot = load.rate * arm.share / arm.pods / SLOTS
    service *= arm.slower * load.utilisation / (per_slot * MEAN_WORK)
    pod = rng.integers(0, arm.pods, n)
    start = np.zeros(n)
    for p in range(arm.pods):
        mine = pod == p
        start[mine] = _starts(times[mine].tolist(), service[mine].tolist())
    ttft = start - times + service + 0.02
    failed = rng.random(n) < arm.error_rate
    at = np.floor((times + ttft) / load.window).astype(int)
    return windows_of(arm.pods, at, ttft, prompt, cached, failed, windows)


def _starts(times: list[float], service: list[float]) -> list[float]:
    """When each request of one pod starts: as soon as a slot is free."""
    free = [0.0] * SLOTS
    starts = []
    for at, work in zip(times, service, strict=True):
        begin = max(at, free[0])
        heapq.heapreplace(free, begin + work)
        starts.append(begin)
    return starts


def windows_of(
    pods: int,
    at: NDArray[np.int64],
    ttft: Floats,
    prompt: Floats,
    cached: Floats,
    failed: NDArray[np.bool_],
    windows: int,
) -> list[ArmWindow]:
    """What an arm of `pods` pods did in each window; `at` is the window of each request."""
    inside = at < windows
    bucket = np.searchsorted(_INNER, ttft, side="left")
    flat = np.bincount((at * len(EDGES) + bucket)[inside], minlength=windows * len(EDGES)).reshape(
        windows, len(EDGES)
    )

    def per_window(values: Floats | NDArray[np.bool_]) -> Floats:
        sums = np.bincount(at[inside], weights=values[inside], minlength=windows)
        return sums.astype(np.float64)

    totals = per_window(np.ones(len(at)))
    errors, prompts, hits = per_window(failed), per_window(prompt), per_window(cached)
    return [
        ArmWindow(
            pods=pods,
            requests=float(totals[j]),
            errors=float(errors[j]),
            prompt_tokens=float(prompts[j]),
            cached_tokens=float(hits[j]),
            ttft=Histogram(EDGES, tuple(flat[j].astype(float).tolist())),
            inter_token=None,
            e2e=None,
        )
        for j in range(windows)
    ]
