"""Decode steps as CUDA graphs: captured once a shape before ready, replayed with new numbers.

It knows layouts and shapes, neither requests nor sampling. At small batches launching the kernels
of a step one by one takes longer than running them; a graph is one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rampway_server.model.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from rampway_server.model.kv_pool import KvPool
    from rampway_server.model.llama import Llama

__all__ = ["Bucket", "CudaGraphs", "DecodeGraphs", "GraphApi", "buckets"]

_FEWEST_PAGES = 64
_PAGES_STEP = 4
# Attention keeps one fp32 partial per 256 keys, head and row of the widest table that a graph was
# captured for. Steps above this are bound by their keys, not by their launches: they run without.
_MOST_CELLS = 65_536


@dataclass(frozen=True, slots=True, order=True)
class Bucket:
    """A captured shape: at most `rows` sequences of at most `pages` pages each."""

    rows: int
    pages: int


class GraphApi(Protocol):
    """Records what a function launches; `CudaGraphs` is the one of a GPU."""

    def capture(self, compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Return (replay, output): a replay reads and writes the very memory that `compute` used."""


class CudaGraphs:
    """torch's CUDA graphs; all of them share one memory pool, so only one result is valid."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, compute: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        """Return (replay, output); runs `compute` once before, to load what a capture must not."""
        compute()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            out = compute()
        return graph.replay, out


@dataclass(frozen=True, slots=True)
class _Captured:
    layout: Layout
    replay: Callable[[], None]
    logits: Tensor


def buckets(max_rows: int, max_pages: int) -> tuple[Bucket, ...]:
    """Return the shapes to capture, largest first: rows double, pages grow fourfold."""
    rows = [1 << power for power in range((max_rows - 1).bit_length())]
    pages, widths = _FEWEST_PAGES, []
    while pages < max_pages:
        widths.append(pages)
        pages *= _PAGES_STEP
    all_of_them = (Bucket(r, w) for r in (*rows, max_rows) for w in (*widths, max_pages))
    return tuple(sorted((b for b in all_of_them if b.rows * b.pages <= _MOST_CELLS), reverse=True))


class DecodeGraphs:
    """The captured decode steps of one model; one thread owns it."""

    def __init__(
        self, model: Llama, pool: KvPool, shapes: tuple[Bucket, ...], api: GraphApi, device: str
    ) -> None:
        """Capture nothing yet: `capture` runs the model."""
        self._model = model
        self._pool = pool
        self._shapes = shapes
        self._api = api
        self._device = device
        self._captured: dict[Bucket, _Captured] = {}

    def capture(self) -> None:
        """Capture every shape. The steps it runs write to page 0 only, which no sequence reads."""
        for shape in self._shapes:
            layout = _padding(shape, self._device)

            def compute(layout: Layout = layout) -> Tensor:
                return self._model.forward(layout, self._pool)

            self._captured[shape] = _Captured(layout, *self._api.capture(compute))

    def run(self, layout: Layout) -> Tensor | None:
        """Return fp32 logits `[S, vocabulary]`, valid until the next run; None where no graph fits.

        A graph fits a step of single tokens only, which all sample. Rows of the graph that the
        step does not need compute token 0 into page 0.
        """
        rows, pages = layout.decode_table.shape
        if not 0 < rows == len(layout.tokens) == len(layout.sampled_rows):
            return None
        shape = self._fitting(rows, pages)
        if shape is None:
            return None
        graph = self._captured[shape]
        for static, now in (
            (graph.layout.tokens, layout.tokens),
            (graph.layout.positions, layout.positions),
            (graph.layout.slots, layout.slots),
            (graph.layout.decode_lengths, layout.decode_lengths),
        ):
            static[:rows].copy_(now)
            static[rows:].zero_()
        # Pages past a row's end are never read, so what an earlier step left there may stay.
        graph.layout.decode_table[:rows, :pages].copy_(layout.decode_table)
        graph.replay()
        return graph.logits[:rows]

    def _fitting(self, rows: int, pages: int) -> Bucket | None:
        """Return the captured shape with the fewest rows, then pages, that holds the step."""
        holding = [b for b in self._captured if b.rows >= rows and b.pages >= pages]
        return min(holding, default=None)


def _padding(shape: Bucket, device: str) -> Layout:
    """Return a step of padding rows only: token 0, written to slot 0, attending to nothing."""

    def zeros(*size: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.zeros(size, dtype=dtype, device=device)

    return Layout(
        tokens=zeros(shape.rows, dtype=torch.int64),
        positions=zeros(shape.rows, dtype=torch.int64),
        slots=zeros(shape.rows, dtype=torch.int64),
        num_decode=shape.rows,
        decode_table=zeros(shape.rows, shape.pages),
        decode_lengths=zeros(shape.rows),
        extend_table=zeros(0, 0),
        extend_starts=zeros(0),
        extend_offsets=zeros(1),
        sampled=torch.arange(shape.rows, device=device),
        sampled_rows=tuple(range(shape.rows)),
    )
