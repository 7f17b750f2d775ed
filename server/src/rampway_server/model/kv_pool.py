"""The paged key and value memory of all layers, and how many pages fit.

It knows shapes and bytes; which sequence owns which page is the cache's affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from rampway_server.model.config import ModelConfig
    from rampway_server.model.contract import LoadOptions

__all__ = ["KvPool", "allocate", "pages_that_fit"]


@dataclass(frozen=True, slots=True)
class KvPool:
    """Per layer `[pages, page, kv_heads, head_dim]`; page 0 takes padding and is never read."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    num_pages: int
    page_size: int


def pages_that_fit(
    config: ModelConfig, options: LoadOptions, free_bytes: int, itemsize: int
) -> int:
    """Return the number of pages, page 0 included.

    Without `num_pages` the pool takes `mem_fraction` of `free_bytes`, but no more than
    `max_num_seqs` full contexts. Raises UsageError where not one sequence fits: of the context
    length that was asked for, or of one page where none was.
    """
    context = options.context_length or config.context_length
    page_bytes = config.kv_bytes_per_token(itemsize) * options.page_size
    per_sequence = -(-context // options.page_size)
    wanted = options.num_pages
    if wanted is None:
        fitting = int(free_bytes * options.mem_fraction) // page_bytes
        wanted = min(fitting, options.max_num_seqs * per_sequence + 1)
    elif wanted * page_bytes > free_bytes:
        raise UsageError(
            f"the KV pool does not fit: got {wanted} pages of {page_bytes} bytes, need at most "
            f"{free_bytes // page_bytes} for the {free_bytes} bytes that are free"
        )
    least = (1 if options.context_length is None else per_sequence) + 1
    if wanted < least:
        raise UsageError(
            f"the KV pool is too small: got {wanted} pages, need {least} for one sequence; set a "
            "shorter --context-length, a larger --mem-fraction-static or a larger --num-pages"
        )
    return wanted


def allocate(
    config: ModelConfig, pages: int, page_size: int, dtype: torch.dtype, device: str
) -> KvPool:
    """Return a pool of zeros; on CPU the system hands the memory out as pages are first used."""
    shape = (pages, page_size, config.kv_heads, config.head_dim)
    tensors = [_zeros(shape, dtype, device) for _ in range(2 * config.num_layers)]
    return KvPool(tuple(tensors[::2]), tuple(tensors[1::2]), pages, page_size)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    if device != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch.zeros writes every byte; numpy's are the system's own untouched zero pages. Zeros,
    # because a masked value that is NaN would still spoil the sum.
    raw = np.zeros(prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)
