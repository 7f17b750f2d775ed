"""Prefix cache of an LLM server: a radix tree over token pages and the allocator of those pages.

Knows nothing of requests, models or tensors; it reads tokens from buffers and writes page ids
into the caller's int32 rows.
"""

from rampway_prefix_cache._native import (
    CacheError,
    CorruptCacheError,
    InvalidInputError,
    PageOwnershipError,
    PrefixCache,
    StaleHandleError,
    Stats,
    __version__,
)

__all__ = [
    "CacheError",
    "CorruptCacheError",
    "InvalidInputError",
    "PageOwnershipError",
    "PrefixCache",
    "StaleHandleError",
    "Stats",
    "__version__",
]
