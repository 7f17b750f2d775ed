"""Runs batches of the engine through a model on one device with torch.

It knows rows, the KV pool and sampling; nothing of requests. One thread owns it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from rampway_server.engine.batch import Batch, Row, RunnerLimits, Sample, Sampling, StepResult
from rampway_server.model.layout import lay_out
from rampway_server.model.sampler import draw

if TYPE_CHECKING:
    from rampway_server.model.decode_graphs import DecodeGraphs
    from rampway_server.model.kv_pool import KvPool
    from rampway_server.model.llama import Llama

__all__ = ["TorchRunner"]

_UNMEASURED_SECONDS_PER_TOKEN = 0.05
_SLOWER_THAN_MEASURED = 8.0  # longer context than warmed up, busy cores
_FLOOR_SECONDS = 10.0


class TorchRunner:
    """The engine's `Runner` on torch; the constructor's arguments are owned by it from then on."""

    def __init__(
        self,
        model: Llama,
        pool: KvPool,
        *,
        device: str,
        context_length: int,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        invariant: bool = False,
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self._graphs = graphs
        self._model = model
        self._invariant = invariant
        self._pool = pool
        self._device = device
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._seconds_per_token = _UNMEASURED_SECONDS_PER_TOKEN
        self._limits = RunnerLimits(
            num_pages=pool.num_pages,
            page_size=pool.page_size,
            context_length=context_length,
            vocab_size=model.config.vocab_size,
        )

    @property
    def limits(self) -> RunnerLimits:
        """Return pool, page and context sizes."""
        return self._limits

    def run(self, batch: Batch) -> StepResult:
        """Return one sample for each row that asks for one; see `Runner`."""
        if not batch.rows:
            return StepResult(())
        with torch.inference_mode():
            layout = lay_out(
                batch.rows,
                self._pool.page_size,
                self._device,
                split_decode=not self._invariant,
            )
            logits = None if self._graphs is None else self._graphs.run(layout)
            if logits is None:
                logits = self._model.forward(layout, self._pool)
            drawn = draw(
                logits, [batch.rows[index] for index in layout.sampled_rows], self._model.kernels
            )
        samples: list[Sample | None] = [None] * len(batch.rows)
        for index, sample in zip(layout.sampled_rows, drawn, strict=True):
            samples[index] = sample
        return StepResult(tuple(samples))

    def warm_up(self) -> None:
        """Run the largest prefill chunk and decode batches of every power of two; times the first.

        Then captures the graphs, where the device has them, so that no step of serving does.

        All of it is written to page 0, which no sequence reads.
        """
        chunk = min(self._max_num_batched_tokens, self._limits.context_length)
        started = time.perf_counter()
        self.run(Batch(step=0, rows=(self._null_row(chunk),)))
        self._seconds_per_token = (time.perf_counter() - started) / chunk
        size = 1
        while size < self._max_num_seqs:
            self.run(Batch(step=0, rows=(self._null_row(1),) * size))
            size *= 2
        self.run(Batch(step=0, rows=(self._null_row(1),) * self._max_num_seqs))
        if self._graphs is not None:
            with torch.inference_mode():
                self._graphs.capture()

    def longest_step_seconds(self, max_batched_tokens: int) -> float:
        """Return a bound for one step: generous, because a probe that fires too early kills us."""
        measured = self._seconds_per_token * max_batched_tokens
        return _FLOOR_SECONDS + _SLOWER_THAN_MEASURED * measured

    def _null_row(self, tokens: int) -> Row:
        pages = -(-(tokens + 1) // self._pool.page_size)
        return Row(
            tokens=np.zeros(tokens, np.int32),
            start=0,
            pages=np.zeros(pages, np.int32),
            sampling=Sampling(temperature=0.0),
        )
