"""Imports torch, and where asked multiplies two matrices on the GPU and compares the result.

It knows no requirements.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict

__all__ = ["probe"]


def probe(device: bool) -> Dict[str, Any]:  # noqa: FBT001 - called with keywords from JSON
    """Version, CUDA version it was built for (empty for none) and, where asked, the error of the product."""
    torch = importlib.import_module("torch")
    result: Dict[str, Any] = {
        "version": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "available": bool(torch.cuda.is_available()),
    }
    if device and result["available"]:
        left = torch.arange(64.0).reshape(8, 8)
        try:
            product = (left.to("cuda") @ left.to("cuda")).cpu()
        except (
            RuntimeError
        ) as error:  # out of memory and launch failures: the GPU's fault, not torch's
            return dict(result, device_error=" ".join(str(error).split())[:500])
        result["difference"] = float((product - left @ left).abs().max())
    return result
