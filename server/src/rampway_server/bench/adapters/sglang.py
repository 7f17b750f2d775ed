"""SGLang's radix caches from an unpacked wheel: the Rust core and the Python tree.

Knows no engine of SGLang: slots are counted here as its allocator would.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any

from rampway_server.bench.adapters.contract import PAGE, MissingError, timed
from rampway_server.bench.adapters.stand_in import stand_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["open_python_tree", "open_rust_core"]

LONGEST = 1 << 20
REAL = (
    *(
        f"sglang.srt.mem_cache.{name}"
        for name in (
            "radix_cache",
            "base_prefix_cache",
            "cache_init_params",
            "events",
            "utils",
            "evict_policy",
            "unified_cache.component_type",
        )
    ),
    "sglang.srt.disaggregation.kv_events",
    "sglang.srt.environ",
)


def _torch() -> Any:
    try:
        import torch
    except (ImportError, OSError) as error:
        raise MissingError(f"torch cannot be imported: {error}") from error
    torch.set_num_threads(1)
    return torch


class _Slots:
    """A pool of `capacity` slots, counted only: values are slices of one range."""

    device = "cpu"

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.range = _torch().arange(LONGEST)

    def free_segment(self, values: Any, start_pos: int = 0) -> None:
        """Take slots back, as the tree's allocator."""
        del start_pos
        self.free += len(values)


def _cut(key: Any) -> Any:
    whole = len(key) // PAGE * PAGE
    return key if whole == len(key) else key[:whole]


class _RustCore:
    def __init__(self, binding: Any, capacity: int) -> None:
        self._b = binding
        self._slots = _Slots(capacity)
        params = binding.TreeCoreInitParamsBinding(
            eviction_policy="lru", page_size=PAGE, device="cpu"
        )
        self._core = binding.RustUnifiedTreeCoreBinding(params, [0])

    def key(self, tokens: NDArray[np.int64]) -> Any:
        return array("q", tokens.tobytes())

    def put(self, key: Any) -> None:
        self.serve(key)

    def find(self, key: Any) -> int:
        found = self._core.match_prefix(self._b.MatchParamsBinding(key=key))
        return int(found.device_indices.shape[0])

    def let_go(self) -> None:
        """Matching alone locks nothing."""

    def looking_up(self, key: Any) -> Callable[[], Any]:
        return partial(self.find, key)

    def let_go_of(self, found: list[Any]) -> None:
        """Matching alone locks nothing."""

    def lock_unlock(self, key: Any, samples: int) -> list[float]:
        node = self._core.match_prefix(self._b.MatchParamsBinding(key=key)).last_device_node_id
        return timed(lambda: self._unlock(node, self._core.inc_lock_ref(node, [])), samples)

    def evict(self, tokens: int) -> None:
        core, got = self._core, 0
        core.evict_device_start(0, tokens)
        while got < tokens:
            step = core.evict_device_next_node(0, {0: got})
            got += step.tracker.get(0, 0)
            if step.node_id is not None:
                got += core.evict_device_leaf(step.node_id).tracker.get(0, 0)
            elif not step.made_progress:
                break
        core.evict_device_end(0)
        self._slots.free += got

    def serve(self, key: Any) -> tuple[int, int]:
        core, b, slots = self._core, self._b, self._slots
        cut = _cut(key)
        values = slots.range[: len(cut)]
        start = time.perf_counter_ns()
        match = core.match_prefix(b.MatchParamsBinding(key=key))
        found, node = match.device_indices.shape[0], match.last_device_node_id
        receipt = core.inc_lock_ref(node, [])
        need = len(cut) - found
        if need > slots.free:
            self.evict(need - slots.free)
        slots.free -= need
        step = core.begin_insert(b.InsertParamsBinding(key=cut, value=values))
        while step.result is None:
            step = core.resume_insert()
        core.end_insert()
        self._unlock(node, receipt)
        return int(found), time.perf_counter_ns() - start

    def watch(self) -> None:
        """Its core keeps its own counts."""

    def _unlock(self, node: int, receipt: Any) -> None:
        self._core.dec_lock_ref(
            node,
            self._b.DecLockRefParamsBinding(
                node_id=receipt.node_id,
                skipped_lock_components=[],
                component_lock_uuids=receipt.component_lock_uuids,
                component_host_lock_uuids=receipt.component_host_lock_uuids,
            ),
        )


class _PythonTree:
    def __init__(self, capacity: int) -> None:
        # By their full names: what stands in for the packages above has no such attributes.
        self._base = importlib.import_module("sglang.srt.mem_cache.base_prefix_cache")
        tree = importlib.import_module("sglang.srt.mem_cache.radix_cache")
        self._tree = tree
        self._slots = _Slots(capacity)
        self._cache = tree.RadixCache.create_simulated(mock_allocator=self._slots, page_size=PAGE)

    def key(self, tokens: NDArray[np.int64]) -> Any:
        return array("q", tokens.tobytes())

    def put(self, key: Any) -> None:
        self.serve(key)

    def find(self, key: Any) -> int:
        params = self._base.MatchPrefixParams(key=self._tree.RadixKey(key))
        return len(self._cache.match_prefix(params).device_indices)

    def let_go(self) -> None:
        """Matching alone locks nothing."""

    def looking_up(self, key: Any) -> Callable[[], Any]:
        return partial(self.find, key)

    def let_go_of(self, found: list[Any]) -> None:
        """Matching alone locks nothing."""

    def lock_unlock(self, key: Any, samples: int) -> list[float]:
        params = self._base.MatchPrefixParams(key=self._tree.RadixKey(key))
        node = self._cache.match_prefix(params).last_device_node

        def both() -> None:
            self._cache.inc_lock_ref(node)
            self._cache.dec_lock_ref(node)

        return timed(both, samples)

    def evict(self, tokens: int) -> None:
        self._cache.evict(self._base.EvictParams(num_tokens=tokens))

    def serve(self, key: Any) -> tuple[int, int]:
        cache, base, radix_key, slots = self._cache, self._base, self._tree.RadixKey, self._slots
        cut = _cut(key)
        values = slots.range[: len(cut)]
        start = time.perf_counter_ns()
        match = cache.match_prefix(base.MatchPrefixParams(key=radix_key(key)))
        found, node = len(match.device_indices), match.last_device_node
        cache.inc_lock_ref(node)
        need = len(cut) - found
        if need > slots.free:
            self.evict(need - slots.free)
        slots.free -= need
        cache.insert(base.InsertParams(key=radix_key(cut), value=values))
        cache.dec_lock_ref(node)
        return found, time.perf_counter_ns() - start

    def watch(self) -> None:
        """Its tree keeps its own counts."""


def open_rust_core(capacity: int, folder: Path) -> _RustCore:
    """Return the Rust core; its library links against one version of torch."""
    _torch()
    libraries = sorted((folder / "sglang/srt/mem_cache/rust_tree_core").glob("mem_cache.*.so"))
    if not libraries:
        raise MissingError(f"SGLang's Rust core is not in {folder}")
    spec = importlib.util.spec_from_file_location("mem_cache", libraries[0])
    assert spec is not None
    assert spec.loader is not None
    try:
        binding = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(binding)
    except ImportError as error:
        raise MissingError(f"SGLang's Rust core cannot be loaded: {error}") from error
    return _RustCore(binding, capacity)


def open_python_tree(capacity: int, folder: Path) -> _PythonTree:
    """Return the Python radix tree."""
    _torch()
    if not (folder / "sglang/srt/mem_cache/radix_cache.py").is_file():
        raise MissingError(f"SGLang's Python tree is not in {folder}")
    stand_in("sglang", folder, REAL)
    stand_in("torchvision", folder, ())
    return _PythonTree(capacity)
