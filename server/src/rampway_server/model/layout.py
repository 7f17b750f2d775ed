"""Turns the rows of a `Batch` into the flat arrays that one forward pass needs.

It knows page ids and positions; it neither computes nor draws anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rampway_server.engine.batch import Row

__all__ = ["Layout", "lay_out"]


@dataclass(frozen=True, slots=True)
class Layout:
    """One step's tokens, single-token rows first.

    tokens:  d d d d | e e e e e | e e e
             decode  | extend 0  | extend 1
    """

    tokens: Tensor
    """`[T]` int64."""
    positions: Tensor
    """`[T]` int64."""
    slots: Tensor
    """`[T]` int64, where each token's key and value go: page id * page size + offset."""
    num_decode: int
    decode_table: Tensor
    """`[num_decode, P]` int32, padded with page 0."""
    decode_lengths: Tensor
    """`[num_decode]` int32, keys to attend to, the token's own included."""
    extend_table: Tensor
    extend_starts: Tensor
    extend_offsets: Tensor
    """`[extends + 1]` int32, relative to the first extend token."""
    sampled: Tensor
    """`[S]` int64, the index in `tokens` of the last token of each row that samples."""
    sampled_rows: tuple[int, ...]
    """The batch rows these belong to, in the same order."""


def lay_out(
    rows: Sequence[Row], page_size: int, device: str, *, split_decode: bool = True
) -> Layout:
    """Return the layout of `rows`, which must be at least one, on `device`.

    Without `split_decode` single tokens are extends too: one way to compute every token.
    """
    order = sorted(range(len(rows)), key=lambda index: len(rows[index].tokens) > 1)
    ordered = [rows[index] for index in order]
    decodes = [row for row in ordered if split_decode and len(row.tokens) == 1]
    extends = ordered[len(decodes) :]
    lasts = np.cumsum([len(row.tokens) for row in ordered]) - 1
    drawn = [at for at, row in enumerate(ordered) if row.sampling is not None]
    lengths = np.array([row.start + 1 for row in decodes], np.int32)
    starts = np.array([row.start for row in extends], np.int32)
    offsets = np.cumsum([0, *(len(row.tokens) for row in extends)]).astype(np.int32)

    def put(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return Layout(
        tokens=put(np.concatenate([row.tokens for row in ordered]).astype(np.int64)),
        positions=put(np.concatenate([_positions(row) for row in ordered])),
        slots=put(np.concatenate([_slots(row, page_size) for row in ordered])),
        num_decode=len(decodes),
        decode_table=put(_table(decodes, page_size)),
        decode_lengths=put(lengths),
        extend_table=put(_table(extends, page_size)),
        extend_starts=put(starts),
        extend_offsets=put(offsets),
        sampled=put(lasts[drawn].astype(np.int64)),
        sampled_rows=tuple(order[at] for at in drawn),
    )


def _positions(row: Row) -> NDArray[np.int64]:
    return np.arange(row.start, row.start + len(row.tokens), dtype=np.int64)


def _slots(row: Row, page_size: int) -> NDArray[np.int64]:
    pages, offsets = np.divmod(_positions(row), page_size)
    return row.pages[pages].astype(np.int64) * page_size + offsets


def _table(rows: Sequence[Row], page_size: int) -> NDArray[np.int32]:
    needed = [-(-(row.start + len(row.tokens)) // page_size) for row in rows]
    table = np.zeros((len(rows), max(needed, default=0)), np.int32)
    for line, row, count in zip(table, rows, needed, strict=True):
        line[:count] = row.pages[:count]
    return table
