"""Reads safetensors files, one or sharded: headers at once, tensors only when asked for.

It knows the container and the index file, not what a tensor means. Every length is checked
against the file before it is used, so a truncated or hostile file is one UsageError.
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

__all__ = ["ITEM_BYTES", "StoredTensor", "StoredTensors", "read_json"]

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_HEADER_LIMIT = 100_000_000  # as in the safetensors library
_JSON_LIMIT = 64 << 20
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor's place; `start` counts from the beginning of its file."""

    file: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    num_bytes: int


class StoredTensors:
    """All tensors of a folder: `table` by name."""

    def __init__(self, folder: Path) -> None:
        """Read the header of every shard; raises UsageError where one is missing or broken."""
        self.folder = folder
        self._maps: dict[str, mmap.mmap] = {}
        self.table: dict[str, StoredTensor] = {}
        for file, names in self._shards().items():
            found = self._header(file)
            for name in sorted(names or found):
                if name not in found:
                    raise UsageError(f"{folder / file} has no tensor {name!r}: the index names it")
                if name in self.table:
                    raise UsageError(f"{folder / file} has the tensor {name!r} again: need it once")
                self.table[name] = found[name]

    def read(self, name: str, first_row: int, rows: int) -> torch.Tensor:
        """Return rows of the tensor as they are stored; a vector counts as one row.

        The result aliases the file's read-only memory: copy it, never write to it.
        """
        import torch

        entry = self.table[name]
        columns = entry.shape[-1]
        dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[entry.dtype]
        piece = _frombuffer(
            self._maps[entry.file],
            dtype,
            count=rows * columns,
            offset=entry.start + first_row * columns * ITEM_BYTES[entry.dtype],
        )
        return piece.reshape(rows, columns)

    def _shards(self) -> dict[str, list[str]]:
        """Return file name to the tensors wanted from it; an empty list wants them all."""
        index = self.folder / _INDEX
        if not index.is_file():
            if not (self.folder / _SINGLE).is_file():
                raise UsageError(
                    f"model folder {str(self.folder)!r} has no {_SINGLE} and no {_INDEX}"
                )
            return {_SINGLE: []}
        weights = read_json(index).get("weight_map")
        if not isinstance(weights, dict) or not weights:
            raise UsageError(f"{index} has no weight_map: need tensor names and their files")
        shards: dict[str, list[str]] = {}
        for name, file in weights.items():
            # A plain name only: an index must not reach outside its folder.
            if not isinstance(file, str) or "/" in file or "\\" in file or file in ("", ".", ".."):
                raise UsageError(f"{index} names the file {file!r}: need a file of this folder")
            shards.setdefault(file, []).append(name)
        return shards

    def _header(self, file: str) -> dict[str, StoredTensor]:
        path = self.folder / file
        data = self._maps[file] = _map(path)
        length = int.from_bytes(data[:8], "little")
        if length > _HEADER_LIMIT or 8 + length > len(data):
            raise UsageError(
                f"{path} is no complete safetensors file: got a header of {length} bytes "
                f"in a file of {len(data)}, download it again"
            )
        try:
            header = json.loads(data[8 : 8 + length])
        except (ValueError, RecursionError):
            raise UsageError(f"{path} has a header that is not JSON: download it again") from None
        if not isinstance(header, dict):
            raise UsageError(f"{path} has a header that is no JSON object: download it again")
        return {
            name: _entry(path, name, raw, 8 + length, len(data))
            for name, raw in header.items()
            if name != "__metadata__"
        }


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`; raises UsageError for anything else."""
    try:
        if path.stat().st_size > _JSON_LIMIT:
            raise UsageError(f"{path} has {path.stat().st_size} bytes: need at most {_JSON_LIMIT}")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is not JSON: need the file of the model's publisher") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no JSON object: need the file of the model's publisher")
    return found


def _entry(path: Path, name: str, raw: object, base: int, size: int) -> StoredTensor:
    try:
        dtype, shape = raw["dtype"], tuple(raw["shape"])  # type: ignore[index]
        begin, end = raw["data_offsets"]  # type: ignore[index]
        sizes = (begin, end, *shape)
        whole = isinstance(dtype, str) and all(type(n) is int and n >= 0 for n in sizes)
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise UsageError(f"{path} describes tensor {name!r} wrongly: download it again")
    if dtype not in ITEM_BYTES:
        raise UsageError(f"{path} stores {name!r} as {dtype}: need one of {', '.join(ITEM_BYTES)}")
    if end - begin != prod(shape) * ITEM_BYTES[dtype] or not shape or base + end > size:
        raise UsageError(
            f"{path} is truncated or broken: tensor {name!r} of shape {shape} ends at byte "
            f"{base + end} of {size}, download it again"
        )
    return StoredTensor(path.name, shape, dtype, base + begin, end - begin)


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise UsageError(f"{path} is empty: need a safetensors file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _frombuffer(data: mmap.mmap, dtype: torch.dtype, count: int, offset: int) -> torch.Tensor:
    import warnings

    import torch

    with warnings.catch_warnings():
        # torch warns that the memory is read-only; our caller only copies from it.
        warnings.simplefilter("ignore", UserWarning)
        return torch.frombuffer(data, dtype=dtype, count=count, offset=offset)
