"""vLLM's block pool from an unpacked wheel: SHA-256 hash chains of blocks of 16 tokens.

Knows no engine of vLLM; hashing is timed with the lookup, since a request pays for both.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from rampway_server.bench.adapters.contract import PAGE, MissingError, timed
from rampway_server.bench.adapters.stand_in import stand_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["open_block_pool"]

REAL = (
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.kv_cache_metrics",
    "vllm.utils.hashing",
    "vllm.utils.math_utils",
    "vllm.distributed.kv_events",
)


class _BlockPool:
    def __init__(self, capacity: int) -> None:
        hashing = importlib.import_module("vllm.utils.hashing")
        self._utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
        pool = importlib.import_module("vllm.v1.core.block_pool")
        self._sha256 = hashing.sha256
        self._utils.init_none_hash(self._sha256)
        # One block more: the pool keeps a null block for itself.
        self._pool = pool.BlockPool(capacity // PAGE + 1, True, PAGE)  # noqa: FBT003 - its signature

    def key(self, tokens: NDArray[np.int64]) -> Any:
        return tokens.tolist()

    def put(self, key: Any) -> None:
        self.serve(key)

    def find(self, key: Any) -> int:
        return len(self._look_up(self._hashes(key))) * PAGE

    def let_go(self) -> None:
        """Looking up alone locks nothing."""

    def looking_up(self, key: Any) -> Callable[[], Any]:
        return partial(self.find, key)

    def let_go_of(self, found: list[Any]) -> None:
        """Looking up alone locks nothing."""

    def lock_unlock(self, key: Any, samples: int) -> list[float]:
        blocks = self._look_up(self._hashes(key))

        def both() -> None:
            self._pool.touch(blocks)
            self._pool.free_blocks(reversed(blocks))

        return timed(both, samples)

    def evict(self, tokens: int) -> None:
        """Free blocks are the cached ones: taking them evicts them."""
        self._pool.get_new_blocks(tokens // PAGE)

    def serve(self, key: Any) -> tuple[int, int]:
        pool = self._pool
        start = time.perf_counter_ns()
        hashes = self._hashes(key)
        known = self._look_up(hashes)
        pool.touch(known)
        blocks = known + pool.get_new_blocks(len(hashes) - len(known))
        request = SimpleNamespace(block_hashes=hashes)
        pool.cache_full_blocks(request, blocks, len(known), len(hashes), PAGE, 0)
        pool.free_blocks(reversed(blocks))
        return len(known) * PAGE, time.perf_counter_ns() - start

    def watch(self) -> None:
        """Its pool keeps its own counts."""

    def _hashes(self, key: Any) -> list[Any]:
        hashes: list[Any] = []
        parent = None
        for at in range(0, len(key) // PAGE * PAGE, PAGE):
            parent = self._utils.hash_block_tokens(self._sha256, parent, key[at : at + PAGE], None)
            hashes.append(parent)
        return hashes

    def _look_up(self, hashes: list[Any]) -> list[Any]:
        found = []
        for block_hash in hashes:
            cached = self._pool.get_cached_block(block_hash, [0])
            if cached is None:
                break
            found.append(cached[0])
        return found


def open_block_pool(capacity: int, folder: Path) -> _BlockPool:
    """Return a block pool with prefix caching on."""
    if not (folder / "vllm/v1/core/block_pool.py").is_file():
        raise MissingError(f"vLLM's block pool is not in {folder}")
    stand_in("vllm", folder, REAL)
    try:
        for name in ("vllm", "vllm.logger", "vllm.envs"):
            importlib.import_module(name)
        sys.modules["vllm.logger"].init_logger = logging.getLogger  # type: ignore[attr-defined]
        sys.modules["vllm"].envs = sys.modules["vllm.envs"]  # type: ignore[attr-defined]
        sys.modules["vllm.envs"].VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES = True  # type: ignore[attr-defined]
        return _BlockPool(capacity)
    except ImportError as error:
        raise MissingError(f"vLLM's block pool cannot be loaded: {error}") from error
