"""The two doors of the model side: `inspect` reads headers, `load` builds what runs.

It knows which file format a path is; what is inside belongs to the format's own module.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rampway_server.model.contract import LoadedModel, LoadOptions, ModelFileInfo

__all__ = ["inspect", "load"]


def inspect(path: Path) -> ModelFileInfo:
    """Return what the files at `path` (a .gguf file or a Hugging Face folder) say of the model.

    Reads headers only and imports no torch: milliseconds, whatever the size of the weights.
    Raises UsageError with one line for files that are missing, unreadable, truncated or not
    supported.
    """
    from rampway_server.model.source import open_source

    return open_source(path).info()


def load(path: Path, options: LoadOptions) -> LoadedModel:
    """Return the model at `path`, loaded on `options.device` with its KV pool allocated.

    Raises UsageError as `inspect` does, and when the options ask for what the model or the
    machine does not have. Sets `OMP_WAIT_POLICY` for the process unless it is set already.
    """
    # Read once, when torch loads OpenMP: threads that spin at every barrier make a step 30 times
    # slower as soon as another process wants the same core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from rampway_server.model.assembly import assemble
    from rampway_server.model.source import open_source

    return assemble(open_source(path), options)
