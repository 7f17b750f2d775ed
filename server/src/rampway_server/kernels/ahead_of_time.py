"""Compiles every kernel for GPUs that are not here and reports what each would use of one.

`python -m rampway_server.kernels.ahead_of_time --arch 90` prints a table and ends with 1 where a
kernel spills registers or asks for more shared memory than the architecture has. It knows
compilers and no device: nothing runs.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rampway_server.kernels.launches import Launch

__all__ = ["SHARED_LIMIT_BYTES", "Usage", "compile_launch", "main"]

# Shared memory one block may ask for. Source: CUDA programming guide, compute capabilities.
SHARED_LIMIT_BYTES = {80: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


@dataclass(frozen=True, slots=True)
class Usage:
    """What one compiled kernel takes of a streaming multiprocessor."""

    registers: int
    """Per thread."""
    spill_bytes: int
    """Per thread: stack and local memory, which no kernel of ours asks for by itself."""
    shared_bytes: int
    """Per block."""

    def faults(self, arch: int) -> list[str]:
        """Return what is wrong with it on `arch`, in words; nothing where it is right."""
        limit = SHARED_LIMIT_BYTES[arch]
        found = [f"spills {self.spill_bytes} bytes a thread"] if self.spill_bytes else []
        if self.shared_bytes > limit:
            found.append(f"asks for {self.shared_bytes} bytes of shared memory, {limit} exist")
        return found


def compile_launch(launch: Launch, arch: int) -> Usage:
    """Return the usage of `launch` compiled for compute capability `arch` (90 is H100)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], int | bool] = {}
    attributes: dict[tuple[int, ...], list[list[str | int]]] = {}
    for at, (name, given) in enumerate({**launch.arguments, **launch.constants}.items()):
        # As the JIT does: 1 becomes a constant, multiples of 16 and pointers are known as such.
        if name in launch.constants or given == 1:
            signature[name] = "constexpr"
            constants[at,] = given if isinstance(given, int) else int(given)
            continue
        signature[name] = given if isinstance(given, str) else "i32"
        if str(given).startswith("*") or (isinstance(given, int) and given % 16 == 0):
            attributes[at,] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    options = {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    return _usage(compiled.asm["cubin"], compiled.metadata.shared)


def _usage(cubin: bytes, dynamic_shared: int) -> Usage:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        said = subprocess.run(  # noqa: S603 - a tool of the triton package on our own file
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        )
    found = _USAGE.search(said.stdout)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing of registers: got {said.stdout!r}")
    registers, stack, static_shared, local = map(int, found.groups())
    return Usage(registers, stack + local, max(static_shared, dynamic_shared))


def main(arguments: list[str] | None = None) -> int:
    """Print one table row a kernel; return 1 where one cannot run well on an architecture."""
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    from rampway_server.kernels.launches import SHAPES, launches

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arch", type=int, action="append", choices=sorted(SHARED_LIMIT_BYTES))
    parser.add_argument("--dtype", action="append", choices=("bf16", "fp16", "fp32"))
    options = parser.parse_args(arguments)
    out = sys.stdout
    out.write("| kernel | shape | dtype | sm | registers | spills | shared bytes | problem |\n")
    out.write("|---|---|---|---|---|---|---|---|\n")
    bad = 0
    for shape in SHAPES:
        for dtype in options.dtype or ("bf16",):
            for launch in launches(shape, dtype):
                for arch in options.arch or (90,):
                    usage = compile_launch(launch, arch)
                    faults = "; ".join(usage.faults(arch))
                    bad += bool(faults)
                    row = f"| {launch.name} | {shape.name} | {dtype} | {arch} | {usage.registers} "
                    out.write(f"{row}| {usage.spill_bytes} | {usage.shared_bytes} | {faults} |\n")
                    out.flush()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
