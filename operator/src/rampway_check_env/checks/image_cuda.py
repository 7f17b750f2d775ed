"""Whether the node's driver supports the CUDA version that the image was built for.

The rule is NVIDIA's: the driver's CUDA major must be at least the image's; minors of one major are
compatible. A cuda-compat folder is covered, because the libcuda that would be loaded is the one asked.
It does not know which packages use CUDA, only torch and the runtime library.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional, Tuple

from rampway_check_env.checks.cuda import Cuda
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.modules import package_folders
from rampway_check_env.versions import Version, parse_version

__all__ = ["check"]

_TORCH_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([0-9]+(?:\.[0-9]+)*)['\"]", re.MULTILINE)
_RUNTIME = re.compile(r"libcudart\.so\.([0-9]+)(?:\.|$)")


def check(context: Context, seen: Cuda) -> List[Finding]:
    """One finding for `cudaRuntime`."""
    image, source = _image_cuda(context)
    if image is None:
        return [skipped("cudaRuntime", "this image has no CUDA runtime")]
    found = "image %s by %s, driver %s" % (image, source, seen.cuda or "unknown")
    if seen.cuda is None or not (
        seen.usable or context.requirements.gpu or context.requirements.cuda_driver
    ):
        return [skipped("cudaRuntime", found)]
    required = "driver CUDA %d or newer" % image.release[0]
    if seen.cuda.release[0] >= image.release[0]:
        return [passed("cudaRuntime", found, required)]
    remedy = (
        "update the driver of the node, add cuda-compat to the image, or use an image built for CUDA %d"
        % seen.cuda.release[0]
    )
    return [failed("cudaRuntime", Fault.BAD_NODE, found=found, required=required, remedy=remedy)]


def _image_cuda(context: Context) -> Tuple[Optional[Version], str]:
    for folder in package_folders("torch", context.machine.module_path):
        match = _TORCH_CUDA.search(_read(Path(folder) / "version.py"))
        if match:
            return parse_version(match.group(1)), "torch"
    files = Path(context.machine.real("/usr/local")).glob("cuda*/lib64/libcudart.so.*")
    versions = [m.group(1) for m in map(_RUNTIME.search, map(str, files)) if m]
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
