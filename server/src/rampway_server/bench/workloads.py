"""The texts that caches are measured with: seeded runs of tokens, and public request traces.

Knows no cache. A trace's block id stands for 512 tokens: equal ids are equal text, and every id's
tokens follow from the id alone.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Arrival", "read_trace", "text", "texts_of"]

VOCABULARY = 151_936
BLOCK = 512
KEPT_BLOCKS = 8192


class Arrival(NamedTuple):
    """One request of a trace."""

    seconds: float
    input_length: int
    output_length: int
    blocks: tuple[int, ...]


def text(seed: int, n: int) -> NDArray[np.int64]:
    """Return `n` tokens that follow from the seed."""
    return np.random.default_rng(seed).integers(0, VOCABULARY, n, dtype=np.int64)


def read_trace(path: Path, limit: int | None = None) -> list[Arrival]:
    """Return the first `limit` requests of a Mooncake trace (JSON lines), or all of them."""
    try:
        with path.open(encoding="utf-8") as lines:
            return [_arrival(line) for line in islice(lines, limit)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"--trace cannot be read: got {str(path)!r} ({error!r}), need JSON lines with"
            " timestamp, input_length, output_length and hash_ids"
        ) from error


def _arrival(line: str) -> Arrival:
    row = json.loads(line)
    blocks = tuple(int(block) for block in row["hash_ids"])
    length = int(row["input_length"])
    if length > len(blocks) * BLOCK:
        raise ValueError(f"{length} tokens are more than {len(blocks)} blocks hold")
    return Arrival(row["timestamp"] / 1000, length, int(row["output_length"]), blocks)


def texts_of(arrivals: list[Arrival]) -> Iterator[NDArray[np.int64]]:
    """Yield each request's tokens; blocks used lately are not made again."""
    made: OrderedDict[int, NDArray[np.int64]] = OrderedDict()
    for arrival in arrivals:
        parts = []
        for block in arrival.blocks:
            if block not in made:
                made[block] = text(block + 1, BLOCK)
                if len(made) > KEPT_BLOCKS:
                    made.popitem(last=False)
            made.move_to_end(block)
            parts.append(made[block])
        yield np.concatenate(parts)[: arrival.input_length]
