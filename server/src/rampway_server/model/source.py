"""Picks the reader of a model path; a reader gives config, tensors by our names, and tokenizer.

It knows which files mean which format, and nothing of what is in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

    from rampway_server.engine.tokenizer import Tokenizer
    from rampway_server.model.config import ModelConfig
    from rampway_server.model.contract import ModelFileInfo

__all__ = ["ModelSource", "open_source"]


class ModelSource(Protocol):
    """An opened model: header checked, weights not read yet."""

    config: ModelConfig

    def info(self) -> ModelFileInfo:
        """Return the facts of the files without reading weights or vocabulary."""

    def pieces(self, name: str) -> Iterator[torch.Tensor]:
        """Yield the tensor `name` (see `names.py`) as row blocks in order, to bound peak memory.

        A vector is yielded as one row. Blocks may alias the file's memory: copy, do not keep.
        """

    def tokenizer(self) -> Tokenizer:
        """Build the tokenizer; this reads the vocabulary."""


def open_source(path: Path) -> ModelSource:
    """Return the reader for `path`; raises UsageError when there is no model we can read."""
    try:
        return _open(path)
    except OSError as error:  # a folder without permission, a path that is too long
        raise UsageError(f"model {str(path)!r} cannot be read: {error.strerror}") from None


def _open(path: Path) -> ModelSource:
    if path.is_dir():
        return _open_folder(path)
    if not path.exists():
        raise UsageError(
            f"model {str(path)!r} does not exist: need a .gguf file or a folder with config.json"
        )
    from rampway_server.model.gguf_source import GgufSource

    return GgufSource(path)


def _open_folder(path: Path) -> ModelSource:
    from rampway_server.model.gguf_source import GgufSource
    from rampway_server.model.safetensors_source import SafetensorsSource

    if (path / "config.json").is_file():
        return SafetensorsSource(path)
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return GgufSource(files[0])
    if files:
        names = ", ".join(file.name for file in files[:5])
        raise UsageError(
            f"model folder {str(path)!r} has {len(files)} GGUF files ({names}): name one"
        )
    raise UsageError(f"model folder {str(path)!r} has neither config.json nor a .gguf file")
