"""Dequantising against the formulas of each block type, written out element by element."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rampway_server.model.gguf_file import GgufFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROWS = 5


def half(raw: bytes, at: int) -> float:
    return float(np.frombuffer(raw, np.float16, 1, at)[0])


def q4_0(b: bytes) -> list[float]:
    d = half(b, 0)
    low = [d * ((x & 15) - 8) for x in b[2:]]
    return low + [d * ((x >> 4) - 8) for x in b[2:]]


def q4_1(b: bytes) -> list[float]:
    d, m = half(b, 0), half(b, 2)
    low = [d * (x & 15) + m for x in b[4:]]
    return low + [d * (x >> 4) + m for x in b[4:]]


def q8_0(b: bytes) -> list[float]:
    return [half(b, 0) * x for x in struct.unpack("32b", b[2:])]


def q5_0(b: bytes) -> list[float]:
    d, high, quants = half(b, 0), int.from_bytes(b[2:6], "little"), b[6:]
    low = [d * (((x & 15) | ((high >> j & 1) << 4)) - 16) for j, x in enumerate(quants)]
    return low + [d * (((x >> 4) | ((high >> j + 16 & 1) << 4)) - 16) for j, x in enumerate(quants)]


def scale_min(j: int, s: bytes) -> tuple[int, int]:
    if j < 4:
        return s[j] & 63, s[j + 4] & 63
    return (s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4


def q4_k(b: bytes) -> list[float]:
    d, dmin, scales, quants = half(b, 0), half(b, 2), b[4:16], b[16:]
    out: list[float] = []
    for pair in range(4):
        part = quants[32 * pair : 32 * pair + 32]
        for nibble in (0, 1):
            scale, minimum = scale_min(2 * pair + nibble, scales)
            out += [d * scale * (x >> 4 * nibble & 15) - dmin * minimum for x in part]
    return out


def q6_k(b: bytes) -> list[float]:
    low, high, scales, d = b[:128], b[128:192], struct.unpack("16b", b[192:208]), half(b, 208)
    out = [0.0] * 256
    for n in range(2):
        ql, qh, sc = low[64 * n :], high[32 * n :], scales[8 * n :]
        for i in range(32):
            parts = (ql[i] & 15, ql[i + 32] & 15, ql[i] >> 4, ql[i + 32] >> 4)
            for k, part in enumerate(parts):
                value = (part | (qh[i] >> 2 * k & 3) << 4) - 32
                out[128 * n + 32 * k + i] = d * sc[2 * k + i // 16] * value
    return out


def bf16(b: bytes) -> list[float]:
    return [struct.unpack("<f", b"\0\0" + b)[0]]


TYPES: dict[str, tuple[int, int, int, Callable[[bytes], list[float]]]] = {
    "F32": (0, 1, 4, lambda b: [struct.unpack("<f", b)[0]]),
    "F16": (1, 1, 2, lambda b: [half(b, 0)]),
    "BF16": (30, 1, 2, bf16),
    "Q4_0": (2, 32, 18, q4_0),
    "Q4_1": (3, 32, 20, q4_1),
    "Q5_0": (6, 32, 22, q5_0),
    "Q8_0": (8, 32, 34, q8_0),
    "Q4_K": (12, 256, 144, q4_k),
    "Q6_K": (14, 256, 210, q6_k),
}


@pytest.mark.parametrize("name", TYPES)
def test_given_random_blocks_when_dequantised_then_equal_the_formula(
    name: str, tmp_path: Path
) -> None:
    type_id, elements, size, formula = TYPES[name]
    blocks = 2 if elements > 1 else 64
    chance = np.random.default_rng(type_id)
    rows = [[block(chance, size) for _ in range(blocks)] for _ in range(ROWS)]
    file = file_with(
        tmp_path, type_id, (elements * blocks, ROWS), b"".join(b"".join(r) for r in rows)
    )
    tensor = file.tensors["t"]
    assert tensor.type_name == name
    expected = np.array([[x for b in r for x in formula(b)] for r in rows], np.float32)
    found = file.dequantised(tensor, 0, ROWS)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    pieces = [
        file.dequantised(tensor, 0, 2),
        file.dequantised(tensor, 2, 1),
        file.dequantised(tensor, 3, 2),
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), found)


def block(chance: np.random.Generator, size: int) -> bytes:
    """Return a random block whose every 16-bit float is finite and small, wherever it lies."""
    raw: np.ndarray[Any, Any] = chance.integers(0, 256, size, dtype=np.uint8)
    halves = chance.normal(0, 0.1, 4).astype(np.float16).view(np.uint8)
    raw[: min(4, size)] = halves[: min(4, size)]
    raw[-2:] = halves[4:6]
    return raw.tobytes()


def file_with(folder: Path, type_id: int, dims: tuple[int, int], data: bytes) -> GgufFile:
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    head += struct.pack("<Q", 1) + b"t" + struct.pack("<IQQIQ", 2, *dims, type_id, 0)
    path = folder / "t.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return GgufFile(path)
