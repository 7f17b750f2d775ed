"""Reads GGUF files: the header at once, strings, arrays and tensors only when asked for.

It knows the container (version 2 and 3, little endian), not what a key or a tensor means.
Every count and length is checked against the size of the file before anything is read or
allocated, so a truncated or hostile file is one UsageError.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["GgufArray", "GgufFile", "GgufTensor"]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_SMALLEST_ENTRY = 13  # key length 8, empty key, type 4, one byte of value
_SMALLEST_TENSOR = 24  # name length 8, rank 4, type 4, offset 8
_MAX_RANK = 4
_KEY_LIMIT = 65_535

# type id: (name, elements a block, bytes a block). Source: ggml-quants, as in gguf.constants.
_BLOCKS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
_REFUSED = {9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS"}
_REFUSED |= {18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS"}
_REFUSED |= {24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M"}
_REFUSED |= {34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}


@dataclass(frozen=True, slots=True)
class GgufArray:
    """Where an array's elements lie; read them with `GgufFile.strings` or `GgufFile.numbers`."""

    element_type: int
    count: int
    start: int


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor's place; `shape` is row-major, the reverse of the file's order."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    start: int
    """Bytes from the beginning of the file."""
    num_bytes: int

    @property
    def type_name(self) -> str:
        """Return ggml's name of the element type, "Q4_1" for example."""
        return _BLOCKS[self.type_id][0]


Value = int | float | bool | str | GgufArray


class GgufFile:
    """An open GGUF file: `values` by key and `tensors` by name, both in file order."""

    def __init__(self, path: Path) -> None:
        """Read the header of `path`; raises UsageError for anything that is not a whole GGUF."""
        self.path = path
        self._data = _map(path)
        self._at = 0
        try:
            self.values, self.tensors = self._header()
        except struct.error:
            raise self._fault("ends inside its header", "a complete file") from None
        self.size = len(self._data)

    def strings(self, key: str) -> list[str]:
        """Return the string array at `key`; UsageError where it is missing or of another type."""
        found = self._array(key)
        if found.element_type != _STRING:
            raise self._fault(f"has no strings at {key!r}", "an array of strings")
        self._at = found.start
        return [self._string(key) for _ in range(found.count)]

    def numbers(self, key: str) -> NDArray[np.generic]:
        """Return the numeric array at `key` without copying it."""
        found = self._array(key)
        layout = _SCALARS.get(found.element_type)
        if layout is None:
            raise self._fault(f"has no numbers at {key!r}", "an array of numbers")
        dtype = np.dtype(layout)
        return np.frombuffer(self._data, dtype=dtype, count=found.count, offset=found.start)

    def raw(self, tensor: GgufTensor) -> NDArray[np.uint8]:
        """Return the tensor's bytes without copying them."""
        return np.frombuffer(self._data, np.uint8, count=tensor.num_bytes, offset=tensor.start)

    def dequantised(self, tensor: GgufTensor, first_row: int, rows: int) -> NDArray[np.float32]:
        """Return `rows` rows from `first_row` on as float32 `[rows, columns]`.

        A vector counts as one row. Rows are independent, so a large tensor can be read in pieces.
        """
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        total = prod(tensor.shape[:-1])
        per_row = tensor.num_bytes // total
        piece = self.raw(tensor)[first_row * per_row : (first_row + rows) * per_row]
        kind = GGMLQuantizationType(tensor.type_id)
        values = dequantize(piece.reshape(rows, per_row), kind)
        # F32 comes back as the file's own read-only memory, which torch refuses.
        owned = values if values.flags.writeable else values.copy()
        return np.asarray(owned, dtype=np.float32).reshape(rows, tensor.shape[-1])

    def _header(self) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
        if self._data[:4] != _MAGIC:
            got = bytes(self._data[:4])
            raise UsageError(
                f"{self.path} is not a GGUF file: got first bytes {got!r}, need b'GGUF'"
            )
        self._at = 4
        version = self._number("<I")
        if version not in (2, 3):
            raise self._fault(f"has GGUF version {version}", "version 2 or 3, little endian")
        num_tensors, num_values = self._number("<Q"), self._number("<Q")
        need = num_tensors * _SMALLEST_TENSOR + num_values * _SMALLEST_ENTRY
        if need > len(self._data):
            claim = f"claims {num_tensors} tensors and {num_values} keys in {len(self._data)} bytes"
            raise self._fault(claim, f"at least {need} bytes")
        values: dict[str, Value] = {}
        for _ in range(num_values):
            key = self._string("a key", limit=_KEY_LIMIT)
            if key in values:
                raise self._fault(f"has the key {key!r} twice", "each key once")
            values[key] = self._value(key)
        return values, self._tensor_table(num_tensors, values)

    def _tensor_table(self, count: int, values: dict[str, Value]) -> dict[str, GgufTensor]:
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 8 <= alignment <= 1 << 20 or alignment % 8:
            raise self._fault(f"has general.alignment {alignment!r}", "a multiple of 8 to 1 MiB")
        found = [self._tensor() for _ in range(count)]
        base = -(-self._at // alignment) * alignment
        table: dict[str, GgufTensor] = {}
        for name, shape, type_id, offset in found:
            tensor = self._placed(name, shape, type_id, base + offset)
            if name in table:
                raise self._fault(f"has the tensor {name!r} twice", "each tensor once")
            table[name] = tensor
        return table

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string("a tensor's name", limit=_KEY_LIMIT)
        rank = self._number("<I")
        if not 1 <= rank <= _MAX_RANK:
            raise self._fault(f"gives tensor {name!r} {rank} dimensions", f"1 to {_MAX_RANK}")
        shape = tuple(self._number("<Q") for _ in range(rank))[::-1]
        return name, shape, self._number("<I"), self._number("<Q")

    def _placed(self, name: str, shape: tuple[int, ...], type_id: int, start: int) -> GgufTensor:
        if type_id not in _BLOCKS:
            kind = _REFUSED.get(type_id, f"number {type_id}")
            known = ", ".join(entry[0] for entry in _BLOCKS.values())
            raise self._fault(f"stores {name!r} as type {kind}", f"one of {known}")
        _, elements, num_bytes = _BLOCKS[type_id]
        if min(shape) < 1 or shape[-1] % elements:
            raise self._fault(f"gives {name!r} the shape {shape}", f"rows of whole {elements}s")
        size = prod(shape) // elements * num_bytes
        if start + size > len(self._data):
            what = (
                f"is truncated: {name!r} ends at byte {start + size}, the file at {len(self._data)}"
            )
            raise self._fault(what, "the complete file; download it again")
        return GgufTensor(name, shape, type_id, start, size)

    def _value(self, key: str) -> Value:
        kind = self._number("<I")
        if kind == _STRING:
            return self._string(key)
        if kind == _ARRAY:
            return self._skip_array(key)
        return self._scalar(kind, key)

    def _skip_array(self, key: str) -> GgufArray:
        element, count = self._number("<I"), self._number("<Q")
        start = self._at
        if element == _STRING:
            if count * 8 > len(self._data) - start:
                raise self._fault(f"claims {count} strings at {key!r}", "a complete file")
            self._skip_strings(key, count)
        elif element in _SCALARS:
            self._take(count * struct.calcsize(_SCALARS[element]), key)
        else:
            raise self._fault(f"has elements of type {element} at {key!r}", "numbers or strings")
        return GgufArray(element, count, start)

    def _skip_strings(self, key: str, count: int) -> None:
        unpack = struct.Struct("<Q").unpack_from  # a local: vocabularies have 100k entries
        data, at, size = self._data, self._at, len(self._data)
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
            if at > size:
                raise self._fault(f"ends inside {key!r}", "a complete file")
        self._at = at

    def _scalar(self, kind: int, key: str) -> int | float | bool:
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self._fault(f"has a value of type {kind} at {key!r}", "a GGUF type")
        value: int | float | bool = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def _number(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def _string(self, what: str, limit: int | None = None) -> str:
        length = self._number("<Q")
        if limit is not None and length > limit:
            raise self._fault(f"has {length} bytes in {what}", f"at most {limit}")
        start = self._take(length, what)
        return self._data[start : start + length].decode("utf-8", errors="replace")

    def _take(self, length: int, what: str) -> int:
        start = self._at
        if length > len(self._data) - start:
            raise self._fault(f"ends inside {what!r}", "a complete file")
        self._at = start + length
        return start

    def _array(self, key: str) -> GgufArray:
        found = self.values.get(key)
        if not isinstance(found, GgufArray):
            raise self._fault(f"has no array {key!r}", "a model file with this key")
        return found

    def _fault(self, what: str, need: str) -> UsageError:
        return UsageError(f"{self.path} {what}: need {need}")


def _map(path: Path) -> mmap.mmap:
    """Return the file as read-only memory; an empty file cannot be mapped and is refused."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise UsageError(f"{path} is empty: need a GGUF file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
