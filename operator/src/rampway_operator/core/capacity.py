"""How many pods each arm gets for a weight, and how many of them take traffic.

It does not know which pods exist; `rotation.py` chooses among them.

The `service` provider splits traffic by counting pods, so a weight is what the pods in rotation express:
candidate / (candidate + baseline + stable). With R replicas, surge S and weight w percent:

- candidate pods: ceil(w · R), at least one
- baseline pods: as many as the candidate's while w < 50, if at least one stable pod remains beside them
- pods in rotation together: as many as R + S and the asked weight allow, never fewer than R; so a weight is
  raised to what pods can express, and lowered only where it would leave no stable pod below 100 %
- stable pods: R where the surge holds all three, else what is left of R + S, never none

| R | S | w   | candidate | baseline | stable in rotation | expressed |
|---|---|-----|-----------|----------|--------------------|-----------|
| 4 | 1 | 5   | 1         | 1        | 3                  | 20 %      |
| 4 | 1 | 25  | 1         | 1        | 2                  | 25 %      |
| 4 | 1 | 50  | 2         | 0        | 2                  | 50 %      |
| 4 | 1 | 100 | 4         | 0        | 0 (1 stands by)    | 100 %     |
| 1 | 1 | 5   | 1         | 0        | 1                  | 50 %      |
| 1 | 2 | 5   | 1         | 1        | 1                  | 33 %      |
| 8 | 2 | 25  | 2         | 2        | 4                  | 25 %      |

Up to 50 % there always is a fair reference, for hit rates, too, whose value depends on the number of
pods: the baseline, or, where it does not fit and at 50 %, a stable arm with equally many pods in rotation.
Above 50 % there is none (`rules.py` refuses to judge hit rates there).
"""

from __future__ import annotations

from dataclasses import dataclass

from rampway_operator.core.spec import Spec

__all__ = [
    "HALF",
    "Layout",
    "amount",
    "before_traffic",
    "expressed",
    "layout",
    "surge",
    "unavailable",
    "weight_note",
]

HALF = 50
"""Percent. From here on stable has no more pods than the candidate: a baseline would only cost."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Pod counts for one weight. `stable` is the most the surge has room for, at least what rotates."""

    candidate: int
    baseline: int
    stable: int
    stable_in_rotation: int


def amount(value: int | str, replicas: int, *, round_up: bool) -> int:
    """`value` in pods: itself, or a percentage of `replicas` rounded as asked."""
    if isinstance(value, int):
        return value
    percent = int(value.removesuffix("%"))
    return -(-percent * replicas // 100) if round_up else percent * replicas // 100


def surge(spec: Spec) -> int:
    """Pods allowed above `replicas` in a rollout: at least one, unless the user wrote 0."""
    if spec.canary.max_surge in (0, "0%"):
        return 0
    return max(1, amount(spec.canary.max_surge, spec.replicas, round_up=True))


def unavailable(spec: Spec) -> int:
    """Serving pods below `replicas` that a rollout may cost; only spent where there is no surge."""
    if surge(spec) > 0:
        return 0
    return min(spec.replicas, amount(spec.canary.max_unavailable, spec.replicas, round_up=False))


def layout(spec: Spec, weight: int) -> Layout:
    """The pods wanted for `weight` percent (0..100) while a stable revision stands beside the candidate."""
    replicas, limit = spec.replicas, spec.replicas + surge(spec)
    if weight <= 0 or replicas == 0:
        return Layout(0, 0, replicas, replicas)
    candidate = max(1, -(-weight * replicas // 100))
    if weight >= 100:
        candidate = max(1, min(candidate, limit - 1))
        return Layout(candidate, 0, max(1, min(replicas, limit - candidate)), 0)
    candidate = min(candidate, max(1, limit - 1))
    together = min(limit, 100 * candidate // weight)
    baseline = 0
    if spec.canary.baseline and weight <= HALF:
        if weight < HALF and limit - 2 * candidate >= 1:
            baseline = candidate
        else:
            candidate = max(1, min(candidate, limit // 2))
            together = 2 * candidate
    rotating = max(1, min(replicas, together - candidate - baseline))
    stable = max(rotating, min(replicas, limit - candidate - baseline))
    apart = baseline > 0 or not spec.canary.baseline or weight > HALF
    if spec.traffic.gateway is not None and apart:
        rotating = stable  # the route has the weight: pods beyond it need not stand by
    return Layout(candidate, baseline, stable, rotating)


def before_traffic(spec: Spec, weight: int) -> Layout:
    """The pods that may stand ready for `weight` while the candidate has none yet.

    Nothing covers for stable then: the candidate gets what the surge has room for, or, without a surge,
    what `maxUnavailable` gives up. The rest of its pods follow behind its traffic. Blue-green asks for its
    preview instead.
    """
    if spec.blue_green is not None:
        preview = max(1, amount(spec.blue_green.preview_replicas, spec.replicas, round_up=True))
        return Layout(min(preview, spec.replicas), 0, spec.replicas, spec.replicas)
    final, extra = layout(spec, weight), surge(spec)
    candidate = min(final.candidate, extra + unavailable(spec))
    stable = spec.replicas if extra else spec.replicas - candidate
    return Layout(candidate, final.baseline, stable, stable)


def expressed(candidate: int, together: int) -> int:
    """The weight in percent that `candidate` of `together` pods in rotation express, rounded half up."""
    if together <= 0:
        return 0
    return (200 * candidate + together) // (2 * together)


def weight_note(asked: int, candidate: int, together: int) -> str:
    """Why the weight is not the asked one, for status; empty when it is."""
    got = expressed(candidate, together)
    if got == asked or together == 0:
        return ""
    return f"asked {asked} %, {candidate} of {together} pods = {got} %"
