"""Sums over paired windows: adding one window, adding two sets, and watching groups of them.

It does not know what was measured.
"""

from __future__ import annotations

from dataclasses import fields

from rampway_operator.core.measures import Part
from rampway_operator.core.state import Sums

__all__ = [
    "GROUPS",
    "add",
    "grouped",
    "merged",
]

GROUPS = (2, 4, 16, 64)
"""Sizes of the groups of windows whose spread is watched."""


def merged(a: Sums, b: Sums) -> Sums:
    """The sums of both sets of windows."""
    return Sums(*(getattr(a, f.name) + getattr(b, f.name) for f in fields(Sums)))


def add(sums: Sums, candidate: Part, reference: Part | None, same: float = 0.0) -> Sums:
    """`sums` with one more window. A window in which an arm served nothing says nothing and is left out.

    With a reference, u = (xc * nr - xr * nc) / (nc + nr): given the window's requests, its expectation is
    zero when it made no difference which arm served which request, whatever the load, the mix of requests
    and the split, even one that changed. The estimate is sum(u) / sum(v).
    """
    if candidate.n <= 0.0 or (reference is not None and reference.n <= 0.0):
        return sums
    if reference is None:
        reference, w, sc, sr, v = Part(0.0, 0.0, 0.0, 0.0), 0.0, candidate.x, 0.0, candidate.n
    else:
        w = 1.0 / (candidate.n + reference.n)
        sc, sr = candidate.x * reference.n * w, reference.x * candidate.n * w
        v = candidate.n * reference.n * w
    u = sc - sr
    return merged(
        sums,
        Sums(
            windows=1,
            xc=candidate.x,
            nc=candidate.n,
            xr=reference.x,
            nr=reference.n,
            rc=candidate.requests,
            rr=reference.requests,
            sc=sc,
            sr=sr,
            same=same * candidate.n * w,
            v=v,
            uu=u * u,
            uv=u * v,
            vv=v * v,
            q=candidate.q + reference.q,
        ),
    )


def grouped(groups: tuple[float, ...], windows: int, u: float, v: float) -> tuple[float, ...]:
    """`groups` after one more window of (u, v), when `windows` windows had been counted before.

    For each size in GROUPS: sums of u and v of the group that is not full yet, then sums of u * u, u * v
    and v * v over the full ones. Windows that resemble their neighbours, as they do when a queue or a
    session outlives a window, show in groups that spread more than their size explains.
    """
    values = list(groups) if len(groups) == 5 * len(GROUPS) else [0.0] * (5 * len(GROUPS))
    for i, size in enumerate(GROUPS):
        at = 5 * i
        values[at] += u
        values[at + 1] += v
        if (windows + 1) % size == 0:
            gu, gv = values[at], values[at + 1]
            values[at : at + 5] = [
                0.0,
                0.0,
                values[at + 2] + gu * gu,
                values[at + 3] + gu * gv,
                values[at + 4] + gv * gv,
            ]
    return tuple(values)
