"""Asks the management library (NVML), by its C interface, for the health of the GPUs that this process can see.

It knows no requirements. A value that this GPU or library does not have is left out.
Prototypes and codes: nvml.h, R550 (docs.nvidia.com/deploy/nvml-api).
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

__all__ = ["probe"]

_UNCORRECTED, _VOLATILE = 1, 0
"""NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC: counted since the driver was loaded or the GPU reset."""


def probe(library: str) -> Dict[str, Any]:
    """Health by GPU; `error` and `code` name a call without which nothing can be said."""
    nvml = ctypes.CDLL(library)
    code = nvml.nvmlInit_v2()
    if code:
        return {"error": "nvmlInit_v2", "code": code}
    try:
        count = ctypes.c_uint()
        code = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        if code:
            return {"error": "nvmlDeviceGetCount_v2", "code": code}
        return {"gpus": [_gpu(nvml, index) for index in range(count.value)]}
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: ctypes.CDLL, index: int) -> Dict[str, Any]:
    device = ctypes.c_void_p()
    code = nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    if code:
        return {"index": index, "error": "nvmlDeviceGetHandleByIndex_v2", "code": code}
    found: Dict[str, Any] = {"index": index}
    mig = _numbers(nvml, "nvmlDeviceGetMigMode", device, 2)
    if mig is not None:
        found["mig"] = bool(mig[0])
    ecc = _numbers(nvml, "nvmlDeviceGetEccMode", device, 2)
    if ecc is not None:
        found["ecc"] = bool(ecc[0])
    total = ctypes.c_ulonglong()
    call = getattr(nvml, "nvmlDeviceGetTotalEccErrors", None)
    if call and not call(device, _UNCORRECTED, _VOLATILE, ctypes.byref(total)):
        found["uncorrected"] = total.value
    rows = _numbers(nvml, "nvmlDeviceGetRemappedRows", device, 4)
    if rows is not None:
        found.update(remap_pending=bool(rows[2]), remap_failed=bool(rows[3]))
    return found


def _numbers(
    nvml: ctypes.CDLL, name: str, device: ctypes.c_void_p, count: int
) -> Optional[List[int]]:
    """What a call that fills `count` unsigned numbers says; None where it fails or does not exist."""
    call = getattr(nvml, name, None)
    values = [ctypes.c_uint() for _ in range(count)]
    if call is None or call(device, *map(ctypes.byref, values)):
        return None
    return [value.value for value in values]
