"""Runs `rampway-server` and counts what the garbage collector does: `watched FILE serve ...`.

Knows nothing of the server; the counts go to FILE when it ends.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path

from rampway_server.__main__ import main

__all__ = ["Pauses"]


class Pauses:
    """Collections since `watch`, and how long they stopped everything."""

    def __init__(self) -> None:
        self.count = [0, 0, 0]
        self.seconds = 0.0
        self.longest = 0.0
        self._began = 0.0

    def watch(self) -> None:
        """Count from now on."""
        gc.callbacks.append(self._notice)

    def _notice(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        took = time.perf_counter() - self._began
        self.count[info["generation"]] += 1
        self.seconds += took
        self.longest = max(self.longest, took)

    def write(self, path: Path) -> None:
        """Write the counts as JSON."""
        figures = {
            "collections": self.count,
            "seconds": round(self.seconds, 6),
            "longest_ms": round(1000 * self.longest, 3),
        }
        path.write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    pauses = Pauses()
    pauses.watch()
    status = main(sys.argv[2:])
    pauses.write(Path(sys.argv[1]))
    sys.exit(status)
