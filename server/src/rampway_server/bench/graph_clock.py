"""Times a GPU call as serving runs it: inside a CUDA graph, without the cost of launching.

It knows CUDA events, not what is timed.
"""
# torch's CUDA events have no types:
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["seconds_of"]

_CALLS = 10
"""In one graph: a call of microseconds is shorter than what an event can tell."""
_REPLAYS = 20


def seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds of one `call`: the median of 20 replays of a graph of 10 calls."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_CALLS):
            call()
    graph.replay()
    times: list[float] = []
    for _ in range(_REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / _CALLS)
    return statistics.median(times)
