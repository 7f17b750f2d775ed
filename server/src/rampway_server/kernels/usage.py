"""What a compiled kernel takes of a GPU, read from its machine code.

It knows the two tools that come with Triton, cuobjdump and nvdisasm, and nothing of kernels.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import triton

from rampway_server.kernels.stub_driver import SHARED_LIMIT_BYTES

__all__ = ["Usage", "usage_of"]

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
_RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?!NOP)\S", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one compiled kernel takes of a streaming multiprocessor."""

    registers: int
    """Per thread."""
    spill_bytes: int
    """Per thread: stack and local memory, which no kernel of ours asks for by itself."""
    shared_bytes: int
    """Per block."""
    instructions: int
    """In the machine code, without the padding at its end."""

    def faults(self, arch: int) -> list[str]:
        """Return what is wrong with it on `arch`, in words; nothing where it is right."""
        limit = SHARED_LIMIT_BYTES[arch]
        found = [f"spills {self.spill_bytes} bytes a thread"] if self.spill_bytes else []
        if self.shared_bytes > limit:
            found.append(f"asks for {self.shared_bytes} bytes of shared memory, {limit} exist")
        return found


def usage_of(cubin: Path, dynamic_shared: int) -> Usage:
    """Return the usage of the kernel in the file `cubin`, which asks for `dynamic_shared` bytes."""
    said = _tool("cuobjdump", "-res-usage", cubin)
    found = _RESOURCES.search(said)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing of registers: got {said!r}")
    registers, stack, static_shared, local = map(int, found.groups())
    instructions = len(_INSTRUCTION.findall(_tool("nvdisasm", "-c", cubin)))
    return Usage(registers, stack + local, max(static_shared, dynamic_shared), instructions)


def _tool(name: str, *arguments: str | Path) -> str:
    done = subprocess.run(  # noqa: S603 - a tool of the triton package on our own file
        [_TOOLS / name, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout
