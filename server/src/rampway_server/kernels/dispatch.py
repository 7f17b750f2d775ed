"""Chooses the set of kernels for a device; imports Triton only when it is chosen.

It knows device names, no tensors.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from rampway_server.kernels.contract import Kernels

__all__ = ["BAKED", "pin_environment", "select"]

BAKED = "RAMPWAY_COMPILED_KERNELS"
"""The variable that names the folder of the image's compiled kernels."""


def select(device: str, choice: str = "auto", *, invariant: bool = False) -> Kernels:
    """Return the kernels for `device` ("cpu" or "cuda"): Triton on cuda, references on cpu.

    `choice` "reference" or "triton" forces one. Triton on cpu needs its interpreter, which
    `TRITON_INTERPRET=1` switches on before the first import: slow, and meant for tests.
    `invariant` asks for results that do not depend on the batch. Triton's prefix_extend_attention
    is so by design; the torch one has a slower variant.
    """
    wanted = choice
    if choice == "auto":
        wanted = "triton" if device == "cuda" else "reference"
    if wanted == "reference" and invariant:
        from rampway_server.kernels import invariant as invariant_kernels

        return invariant_kernels
    if wanted == "reference":
        from rampway_server.kernels import reference

        return reference
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise UsageError(
            "kernels 'triton' cannot run on cpu: need --device cuda, or TRITON_INTERPRET=1 in the "
            "environment for a slow test run"
        )
    pin_environment()
    from rampway_server.kernels import compiled

    return compiled


def pin_environment() -> None:
    """Fix what Triton reads from the environment into its cache keys, before it is imported.

    Its default of floating-point fusion flips in 3.10; ours is what the kernels were measured and
    compiled ahead of time with. Where the image brings compiled kernels, they are looked up too.
    """
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    if os.environ.get(BAKED):
        manager = "rampway_server.kernels.baked_cache:BakedCache"
        os.environ.setdefault("TRITON_CACHE_MANAGER", manager)
