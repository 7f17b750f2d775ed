"""Asks libcuda, by its C interface, for the driver's CUDA version and the GPUs it shows to this process.

It knows neither torch nor requirements. Every answer is a number or an error code of the driver.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, Dict

__all__ = ["probe"]

_MAJOR, _MINOR = 75, 76
"""CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{MAJOR,MINOR}"""


def probe(library: str, free_memory: bool) -> Dict[str, Any]:  # noqa: FBT001 - called with keywords from JSON
    """Driver version, error codes and GPUs; `error` names the call that failed and its code.

    Free memory needs a context on each GPU, so it is only asked for where it is wanted.
    """
    cuda = ctypes.CDLL(library)
    result: Dict[str, Any] = {"path": _path_of_libcuda(), "gpus": []}
    version = ctypes.c_int()
    code = cuda.cuDriverGetVersion(ctypes.byref(version))
    if code:
        return dict(result, error="cuDriverGetVersion", code=code)
    result["cuda"] = "%d.%d" % (version.value // 1000, version.value % 1000 // 10)
    code = cuda.cuInit(0)
    if code:
        return dict(result, error="cuInit", code=code)
    count = ctypes.c_int()
    code = cuda.cuDeviceGetCount(ctypes.byref(count))
    if code:
        return dict(result, error="cuDeviceGetCount", code=code)
    gpus = [_gpu(cuda, index, free_memory=free_memory) for index in range(count.value)]
    return dict(result, gpus=gpus)


def _gpu(cuda: ctypes.CDLL, index: int, *, free_memory: bool) -> Dict[str, Any]:
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    major, minor, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
    calls = (
        ("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), index)),
        ("cuDeviceGetName", cuda.cuDeviceGetName(name, 255, device)),
        ("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)),
        ("cuDeviceGetAttribute", cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)),
        ("cuDeviceTotalMem", cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)),
    )
    for call, code in calls:
        if code:
            return {"index": index, "error": call, "code": code}
    found: Dict[str, Any] = {
        "index": index,
        "name": name.value.decode("utf-8", "replace"),
        "capability": "%d.%d" % (major.value, minor.value),
        "total": total.value,
    }
    return dict(found, **_free(cuda, device)) if free_memory else found


def _free(cuda: ctypes.CDLL, device: ctypes.c_int) -> Dict[str, Any]:
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    if code:
        return {"error": "cuDevicePrimaryCtxRetain", "code": code}
    try:
        code = cuda.cuCtxSetCurrent(context) or cuda.cuMemGetInfo_v2(
            ctypes.byref(free), ctypes.byref(total)
        )
        return {"error": "cuMemGetInfo", "code": code} if code else {"free": free.value}
    finally:
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def _path_of_libcuda() -> str:
    """The file that was loaded, resolved, so that its name shows the driver version; empty if not found."""
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if Path(path).name.startswith("libcuda.so"):
                return str(Path("/" + path).resolve())
    return ""
