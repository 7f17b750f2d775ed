"""Compiles and runs a small Triton kernel and compares its numbers, on the GPU or in the interpreter.

It knows no requirements. Loading it imports Triton, so only a child process does.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Dict

__all__ = ["probe"]

_LENGTH, _BLOCK = 1000, 256
"""Not a multiple, so that the mask is used."""


def probe(interpret: bool) -> Dict[str, Any]:  # noqa: FBT001 - called with keywords from JSON
    """Triton's version and the largest difference of the kernel's result; `on` says where it ran."""
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # read by Triton when the kernel is declared
    torch = importlib.import_module("torch")
    triton = importlib.import_module("triton")
    kernel = importlib.import_module("rampway_check_env.probes.kernel").scale_and_add
    device = "cpu" if interpret else "cuda"
    x = torch.arange(_LENGTH, dtype=torch.float32, device=device)
    y = torch.ones(_LENGTH, dtype=torch.float32, device=device)
    out = torch.zeros(_LENGTH, dtype=torch.float32, device=device)
    kernel[((_LENGTH + _BLOCK - 1) // _BLOCK,)](x, y, out, _LENGTH, BLOCK=_BLOCK)
    difference = float((out - (x * 2 + y)).abs().max())
    return {
        "version": str(triton.__version__),
        "difference": difference,
        "on": "interpreter" if interpret else torch.cuda.get_device_name(0),
    }
