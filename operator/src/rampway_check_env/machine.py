"""Where the check looks: file system root, environment and python of the image it runs in.

It reads files and nothing else; it does not know what they mean. Tests give it another root.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Optional, Tuple

__all__ = ["Machine"]

_MAX_TEXT = 1 << 20
_GPU_DEVICE = re.compile("nvidia[0-9]+")


@dataclass(frozen=True)
class Machine:
    """The image and node around this process. Paths given and returned are as seen inside `root`."""

    root: str = ""
    environ: Dict[str, str] = field(default_factory=lambda: dict(os.environ))
    executable: str = field(default_factory=lambda: sys.executable)
    module_path: Tuple[str, ...] = field(default_factory=lambda: tuple(p for p in sys.path if p))

    def real(self, path: str) -> str:
        """The path to open for `path`."""
        return self.root + path

    def has_gpu_device(self) -> bool:
        """Whether the node gave this container an NVIDIA device, working or not."""
        try:
            return any(_GPU_DEVICE.fullmatch(p.name) for p in Path(self.real("/dev")).iterdir())
        except OSError:
            return False

    def read_text(self, path: str) -> Optional[str]:
        """The first MiB of a text file; None where it cannot be read."""
        data = self.read_bytes(path, limit=_MAX_TEXT)
        return None if data is None else data.decode("utf-8", "replace")

    def read_bytes(self, path: str, *, limit: int) -> Optional[bytes]:
        """The first `limit` bytes of a file; None where it cannot be read."""
        try:
            with Path(self.real(path)).open("rb") as stream:
                return stream.read(limit)
        except OSError:
            return None
