"""Whether the node's driver supports the CUDA version that the image was built for.

A cuda-compat folder is covered, because the libcuda that would be loaded is the one asked. It does not know
which packages use CUDA, only torch and the runtime library.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from rampway_check_env.checks.cuda import Cuda
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.modules import package_folders
from rampway_check_env.versions import Version, parse_version

__all__ = ["MINIMUM_DRIVERS", "check"]

MINIMUM_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""First Linux driver of each CUDA major; minors of one major run on it, without what is new in them.

CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version
Compatibility"; CUDA Compatibility, "Minor Version Compatibility" (docs.nvidia.com/deploy/cuda-compatibility).
Newer drivers run older CUDA. The other way needs the cuda-compat package of the image's CUDA version, which
works on data-centre GPUs only ("Forward Compatibility", same guide); the driver says 804 on others.
"""
_FORWARD_REFUSED = 804
_TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([0-9]+(?:\.[0-9]+)*)['\"]", re.MULTILINE)
_RUNTIME = re.compile(r"libcudart\.so\.([0-9]+)(?:\.|$)")


def check(context: Context, seen: Cuda) -> List[Finding]:
    """One finding for `cudaRuntime`."""
    image, source = _image_cuda(context)
    if image is None:
        return [skipped("cudaRuntime", "this image has no CUDA runtime")]
    driver, told = _driver_cuda(seen)
    found = "image %s by %s, driver %s" % (image, source, told)
    if driver is None or not (
        seen.usable or context.requirements.gpu or context.requirements.cuda_driver
    ):
        return [skipped("cudaRuntime", found)]
    major = image.release[0]
    required = "driver CUDA %d or newer" % major
    if seen.code == _FORWARD_REFUSED:
        remedy = (
            "forward compatibility needs a data-centre GPU: update the driver%s and take the "
            "cuda-compat folder off the library path"
        ) % _minimum(major)
        return [
            failed("cudaRuntime", Fault.BAD_NODE, found=found, required=required, remedy=remedy)
        ]
    if driver.release[0] >= major:
        return [passed("cudaRuntime", found + _note(image, driver, seen), required)]
    remedy = "update the driver of the node%s, %s, or use an image built for CUDA %d" % (
        _minimum(major),
        _compat_advice(context, major),
        driver.release[0],
    )
    return [failed("cudaRuntime", Fault.BAD_NODE, found=found, required=required, remedy=remedy)]


def _driver_cuda(seen: Cuda) -> Tuple[Optional[Version], str]:
    """CUDA of the driver as it says itself; of one that says nothing, the major its version belongs to."""
    if seen.cuda is not None:
        return seen.cuda, str(seen.cuda)
    driver = seen.driver
    if driver is None:
        return None, "unknown"
    majors = [
        major
        for major, text in MINIMUM_DRIVERS.items()
        if driver.release >= (parse_version(text) or driver).release
    ]
    if not majors:
        return Version((min(MINIMUM_DRIVERS) - 1,)), "%s (before CUDA 11)" % driver
    return Version((max(majors),)), "%s (CUDA %d)" % (driver, max(majors))


def _note(image: Version, driver: Version, seen: Cuda) -> str:
    if "/compat/" in seen.library:
        return ", by forward compatibility (%s)" % seen.library
    if driver.release[0] == image.release[0] and driver.release < image.release:
        return ", by minor version compatibility"
    return ""


def _minimum(major: int) -> str:
    return " to %s or newer" % MINIMUM_DRIVERS[major] if major in MINIMUM_DRIVERS else ""


def _compat_advice(context: Context, major: int) -> str:
    """What to do about forward compatibility: the folder may be in the image and not be used."""
    folders = _inside(context, "usr/local", "cuda*/compat")
    useful = [f for f in folders if _holds_libcuda(context, f)]
    if useful:
        return "put %s first in LD_LIBRARY_PATH (data-centre GPUs only)" % useful[0]
    return "add cuda-compat-%d-* to the image (data-centre GPUs only)" % major


def _holds_libcuda(context: Context, folder: str) -> bool:
    return context.loader.read(folder + "/libcuda.so.1") is not None


def _inside(context: Context, base: str, pattern: str) -> Sequence[str]:
    """Paths in the image that match, as seen inside it, sorted."""
    root = context.machine.real("/")
    return sorted("/" + str(p.relative_to(root)) for p in Path(root, base).glob(pattern))


def _image_cuda(context: Context) -> Tuple[Optional[Version], str]:
    for folder in package_folders("torch", context.machine.module_path):
        match = _TORCH_CUDA.search(_read(Path(folder) / "version.py"))
        if match:
            return parse_version(match.group(1)), "torch"
    files = _inside(context, "usr/local", "cuda*/lib64/libcudart.so.*")
    versions = [m.group(1) for m in map(_RUNTIME.search, files) if m]
    path = context.loader.from_python("libcudart.so")
    match = _RUNTIME.search(str(Path(context.machine.real(path)).resolve())) if path else None
    if match:
        versions.append(match.group(1))
    return (parse_version(max(versions, key=int)), "libcudart") if versions else (None, "")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
