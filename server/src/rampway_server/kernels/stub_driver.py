"""A Triton driver for a GPU that is not here: kernels compile for it, and a launch does nothing.

It knows what Triton asks of a driver between a call of a kernel and its launch. The JIT itself
chooses signature, specialisation, options and cache key, so what is compiled under this driver is
found again by the first launch on a GPU of that architecture.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import triton
from triton.backends.compiler import GPUTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SHARED_LIMIT_BYTES", "pretend"]

# Shared memory one block may ask for. Source: CUDA programming guide, compute capabilities.
SHARED_LIMIT_BYTES = {80: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
_WARP = 32
_MOST_THREADS = 1024


class _Utils:
    def __init__(self, arch: int) -> None:
        self._arch = arch

    def get_device_properties(self, _device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED_LIMIT_BYTES[self._arch]}

    def load_binary(self, *_: Any) -> tuple[None, None, int, int, int]:
        """Return no module and no function: there is no GPU to load them on."""
        return None, None, 0, 0, _MOST_THREADS


class _StubDriver:
    def __init__(self, arch: int) -> None:
        self._arch = arch
        self.utils = _Utils(arch)

    def get_current_device(self) -> int:
        """Return the architecture: kernels remember what they compiled by device number."""
        return self._arch

    def get_current_stream(self, _device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._arch, _WARP)

    def launcher_cls(self, _source: Any, _metadata: Any) -> Callable[..., None]:
        return _launch_nothing


def _launch_nothing(*_: Any) -> None:
    """Stand for the launch."""


@contextmanager
def pretend(arch: int) -> Iterator[None]:
    """Compile for compute capability `arch` (90 is H100) inside the block; nothing runs."""
    config = triton.runtime.driver
    before = config._active  # noqa: SLF001 - its property would look for a GPU
    config.set_active(_StubDriver(arch))
    try:
        yield
    finally:
        config._active = before  # noqa: SLF001 - None, where no driver was needed yet
