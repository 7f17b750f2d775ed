"""The Triton kernel of the check: out = 2 x + y. Only `triton_kernel.py` imports it.

It knows nothing of devices. Triton reads the source of the function, so it stands in a module of its own.
"""

import importlib
from typing import Any

__all__ = ["scale_and_add"]

triton = importlib.import_module("triton")
tl = importlib.import_module("triton.language")


@triton.jit  # type: ignore[untyped-decorator]
def scale_and_add(
    x_ptr: Any,
    y_ptr: Any,
    out_ptr: Any,
    length: Any,
    BLOCK: tl.constexpr,  # type: ignore[name-defined] # noqa: N803 - Triton's spelling
) -> None:
    """Stores 2 x + y for `length` float32 values."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < length
    x = tl.load(x_ptr + at, mask=live, other=0.0)
    y = tl.load(y_ptr + at, mask=live, other=0.0)
    tl.store(out_ptr + at, x * 2.0 + y, mask=live)
