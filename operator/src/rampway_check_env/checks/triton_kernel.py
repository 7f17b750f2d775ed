"""Whether Triton has the version required, can write its cache, and compiles a kernel that computes rightly.

It does not know the engine's kernels. Without a GPU the kernel runs in Triton's interpreter, and the finding
says so: that proves the installation, not the compiler.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import List

from rampway_check_env.checks.cuda import Cuda
from rampway_check_env.checks.verdicts import broken, version_finding
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.modules import installed_version

__all__ = ["check"]

_LIMIT = 150.0
_TOLERANCE = 1e-6
_CACHE_SAMPLE = 1 << 16
"""Bytes written to try the cache folder: about what one compiled kernel takes."""


def check(context: Context, seen: Cuda) -> List[Finding]:
    """Findings for `triton`, `tritonCache` and `tritonCompile`."""
    wanted = context.requirements
    if not context.installed("triton"):
        if wanted.triton is None and not wanted.triton_compile:
            return [skipped("triton", "not installed")]
        return [
            failed(
                "triton",
                Fault.BAD_REVISION,
                found="not installed",
                required=str(wanted.triton or "installed"),
                remedy="install triton in the image",
            )
        ]
    version = installed_version("triton", context.machine.module_path)
    findings = [version_finding("triton", version or "unknown", wanted.triton)]
    asked = seen.usable if wanted.triton_compile is None else wanted.triton_compile
    if not asked:
        return [*findings, skipped("tritonCompile", "not required and no GPU to try it on")]
    if seen.usable:
        findings.append(_cache(context))
        if findings[-1].fault:
            return findings
    elif seen.fault_text:
        return [*findings, skipped("tritonCompile", "the GPU does not answer")]
    return [*findings, _kernel(context, on_gpu=seen.usable)]


def _kernel(context: Context, *, on_gpu: bool) -> Finding:
    if not context.installed("torch"):
        if context.requirements.triton_compile:
            return failed(
                "tritonCompile",
                Fault.BAD_REVISION,
                found="torch is not installed",
                required="a kernel that runs",
                remedy="install torch in the image",
            )
        return skipped("tritonCompile", "torch is not installed")
    outcome = context.probe("triton_kernel", limit=_LIMIT, interpret=not on_gpu)
    if not outcome.data:
        remedy = "repair Triton in the image: a C compiler or prebuilt launcher, Python headers, and Triton's own ptxas must fit together"
        return broken(
            "tritonCompile", "compiling and running a kernel", outcome, "a kernel that runs", remedy
        )
    if outcome.data["difference"] > _TOLERANCE:
        found = "the kernel's numbers are off by %g" % outcome.data["difference"]
        return failed(
            "tritonCompile",
            Fault.BAD_REVISION,
            found=found,
            required="within %g" % _TOLERANCE,
            remedy="install a Triton release that supports this GPU",
        )
    where = outcome.data["on"] if on_gpu else "interpreter, no GPU here"
    return passed("tritonCompile", "kernel correct in %.1f s (%s)" % (outcome.seconds, where))


def _cache(context: Context) -> Finding:
    environ = context.machine.environ
    home = environ.get("TRITON_HOME") or environ.get("HOME") or "~"
    default = str(Path(home).expanduser() / ".triton" / "cache")
    folder = environ.get("TRITON_CACHE_DIR") or default
    try:
        _try_to_write(context.machine.real(folder))
    except OSError as error:
        remedy = "mount an emptyDir there, or set TRITON_CACHE_DIR to a folder that can be written"
        return failed(
            "tritonCache",
            Fault.BAD_REVISION,
            found="%s: %s" % (folder, error.strerror or error),
            required="a writable folder",
            remedy=remedy,
        )
    return passed("tritonCache", "%s is writable" % folder)


def _try_to_write(folder: str) -> None:
    """Raise OSError unless a kernel's worth of bytes fits: a full disk takes empty files."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        if file.write(bytes(_CACHE_SAMPLE)) < _CACHE_SAMPLE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
