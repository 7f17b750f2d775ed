"""The GGUF header: what it reads, and that no broken or hostile file gives anything but one line."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tracemalloc
from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from gguf_builders import add_tokenizer, finish

from rampway_server.errors import UsageError
from rampway_server.model import inspect
from rampway_server.model.gguf_file import GgufFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    path = tmp_path / "good.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("flag", True)
    writer.add_array("list", [1, 2, 3])
    add_tokenizer(writer, 50)
    writer.add_tensor("a.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("b.weight", np.arange(6, dtype=np.float16))
    return finish(writer, path).read_bytes()


def test_given_a_whole_file_when_opened_then_values_arrays_and_tensors_are_read(
    good: bytes, tmp_path: Path
) -> None:
    file = open_bytes(good, tmp_path)
    assert file.values["llama.block_count"] == 3
    assert file.values["llama.eps"] == 0.5
    assert file.values["flag"] is True
    assert file.numbers("list").tolist() == [1, 2, 3]
    assert file.strings("tokenizer.ggml.tokens")[:2] == ["<|end|>", "<|start|>"]
    assert file.tensors["a.weight"].shape == (3, 4)
    assert file.dequantised(file.tensors["a.weight"], 1, 2).tolist() == [
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert file.dequantised(file.tensors["b.weight"], 0, 1).tolist() == [[0, 1, 2, 3, 4, 5]]


def test_given_a_file_cut_at_any_byte_when_opened_then_it_is_one_line(
    good: bytes, tmp_path: Path
) -> None:
    end = len(good) - 32  # the last tensor's padding may be missing
    for size in [*range(200), *range(200, end, 7)]:
        with pytest.raises(UsageError) as caught:
            open_bytes(good[:size], tmp_path)
        assert "\n" not in str(caught.value)


def test_given_random_damage_when_opened_then_it_is_refused_or_read_but_never_breaks(
    good: bytes, tmp_path: Path
) -> None:
    chance = random.Random(5)
    for _ in range(1500):
        damaged = bytearray(good)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(damaged))
            damaged[at] = chance.choice((0, 1, 8, 9, 127, 128, 255, chance.randrange(256)))
        try:
            file = open_bytes(bytes(damaged), tmp_path)
            file.strings("tokenizer.ggml.tokens")
        except UsageError:
            continue


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04" + bytes(50), "not a GGUF file: got first bytes b'PK"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 62, 0), "claims 4611686018427387904 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "claims 0 tensors and 1099511627776 keys"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 60) + bytes(20), "a key"),
    ],
)
def test_given_a_hostile_header_when_opened_then_the_claim_is_named(
    content: bytes, complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint):
        open_bytes(content, tmp_path)


def test_given_huge_claims_when_opened_then_little_memory_is_taken(tmp_path: Path) -> None:
    key = struct.pack("<Q", 1) + b"k"
    claims = [
        struct.pack("<IIQ", 9, 8, 1 << 61),  # strings
        struct.pack("<IIQ", 9, 4, 1 << 61),  # numbers
        struct.pack("<IIQ", 9, 9, 1 << 61),  # arrays of arrays
        struct.pack("<IQ", 8, 1 << 61),  # one string
    ]
    tracemalloc.start()
    for claim in claims:
        content = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + claim + bytes(64)
        with pytest.raises(UsageError):
            open_bytes(content, tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    ("shape", "kind", "offset", "complaint"),
    [
        ((1 << 40, 1 << 40), 0, 0, "is truncated"),
        ((4,), 0, 1 << 50, "is truncated"),
        ((0,), 0, 0, "shape"),
        ((33,), 2, 0, "rows of whole 32s"),
        ((4,), 10, 0, "type Q2_K"),
        ((4,), 999, 0, "type number 999"),
        ((1, 1, 1, 1, 1), 0, 0, "5 dimensions"),
    ],
)
def test_given_a_hostile_tensor_when_opened_then_it_is_named(
    shape: tuple[int, ...], kind: int, offset: int, complaint: str, tmp_path: Path
) -> None:
    tensor = struct.pack("<Q", 1) + b"t" + struct.pack("<I", len(shape))
    tensor += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
    content = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + tensor + bytes(64)
    with pytest.raises(UsageError, match=complaint):
        open_bytes(content, tmp_path)


def test_given_no_model_when_inspected_then_one_line_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        inspect(tmp_path / "nothing.gguf")
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        inspect(tmp_path / ("x" * 300))
    with pytest.raises(UsageError, match=r"neither config.json nor a .gguf file"):
        inspect(tmp_path)
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError, match="2 GGUF files"):
        inspect(tmp_path)


def test_given_a_model_when_it_is_inspected_then_torch_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from rampway_server.model import inspect\n"
        "from rampway_server.errors import UsageError\n"
        f"try: inspect(pathlib.Path({str(tmp_path)!r}))\n"
        "except UsageError: pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'gguf', 'tokenizers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def open_bytes(content: bytes, folder: Path) -> GgufFile:
    path = folder / "case.gguf"
    path.write_bytes(content)
    return GgufFile(path)
