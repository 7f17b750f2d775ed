"""Every Triton kernel against its torch reference, in Triton's interpreter on CPU or on a GPU.

Not collected by name: the interpreter is chosen when triton is first imported, so these run in a
process of their own, which test_kernel_launch.py starts. By hand:
`TRITON_INTERPRET=1 pytest server/tests/kernel_parity.py`, or `KERNEL_DEVICE=cuda pytest ...`. The
whole matrix of shapes is marked slow; a few odd ones stand for it otherwise.

The interpreter rounds bfloat16 wrongly and cannot have races: both are tested on a GPU only.
Unused memory around tensors is NaN, so that a read out of bounds shows.
"""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime import interpreter

from rampway_server.kernels import reference
from rampway_server.kernels.contract import LogitEdits, SamplingRules
from rampway_server.kernels.dispatch import select
from rampway_server.kernels.tolerances import TOLERANCES

if TYPE_CHECKING:
    from pathlib import Path

    from triton.runtime.interpreter import TensorHandle

DEVICE = os.environ.get("KERNEL_DEVICE", "cpu")
kernels = select(DEVICE, "triton")
torch.set_default_device(DEVICE)

DTYPES = (torch.float32, torch.float16, *([torch.bfloat16] if DEVICE == "cuda" else []))
SLOW_WIDTHS = [
    pytest.param(width, marks=pytest.mark.slow) for width in (2, 31, 127, 128, 4096, 4097, 8191)
]
DTYPE_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(11)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 48, 576, 1000, 1025, *SLOW_WIDTHS])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_given_odd_rows_when_normed_then_equal_the_reference(
    rows: int, columns: int, dtype: torch.dtype
) -> None:
    x, residual = guarded(rows, columns, dtype=dtype), guarded(rows, columns, dtype=dtype)
    weight = torch.randn(columns).to(dtype)
    assert_close("rms_norm", kernels.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    mine, theirs = residual.clone(), residual.clone()
    found = kernels.rms_norm(x, weight, 1e-5, mine)
    assert_close("rms_norm", found, reference.rms_norm(x, weight, 1e-5, theirs))
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("inner", [1, 80, 1024, 1537, *SLOW_WIDTHS])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_given_odd_widths_when_gated_then_equal_the_reference(
    rows: int, inner: int, dtype: torch.dtype
) -> None:
    x = guarded(rows, 2 * inner, dtype=dtype)
    assert_close("silu_mul", kernels.silu_mul(x), reference.silu_mul(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("q_heads", "kv_heads", "head_dim", "page"),
    [
        (9, 3, 64, 16),
        (1, 1, 2, 1),
        (8, 8, 80, 32),
        (16, 1, 96, 1),
        (3, 1, 128, 16),
        (2, 2, 256, 64),
        *(
            pytest.param(group * 2, 2, head_dim, page, marks=pytest.mark.slow)
            for head_dim in (64, 80, 96, 128, 256)
            for page in (1, 16, 32, 64)
            for group in (1, 5, 16)
        ),
    ],
)
def test_given_odd_heads_when_rotated_then_queries_and_pools_equal_the_reference(
    q_heads: int, kv_heads: int, head_dim: int, page: int, dtype: torch.dtype
) -> None:
    tokens, pages = 5, 7
    qkv = guarded(tokens, (q_heads + 2 * kv_heads) * head_dim, dtype=dtype)
    cos_sin = torch.randn(50, head_dim)
    positions = torch.randint(0, 50, (tokens,))
    slots = torch.randperm(pages * page)[:tokens]
    pools = [torch.randn(pages, page, kv_heads, head_dim).to(dtype) for _ in range(2)]
    mine, theirs = [p.clone() for p in pools], [p.clone() for p in pools]
    found = kernels.rope_kv_write(qkv, cos_sin, positions, slots, *mine)
    expected = reference.rope_kv_write(qkv, cos_sin, positions, slots, *theirs)
    assert_close("rope_kv_write", found, expected)
    for own, other in zip(mine, theirs, strict=True):
        assert_close("rope_kv_write", own, other)


ATTENTION = [  # query heads, key heads, head size, page
    (9, 3, 64, 16),
    (4, 4, 64, 1),
    (16, 1, 80, 32),
    (2, 1, 96, 16),
    (8, 2, 128, 16),
    (7, 1, 32, 8),
    (2, 2, 256, 64),
]
MATRIX = [
    pytest.param(group * kv_heads, kv_heads, head_dim, page, marks=pytest.mark.slow)
    for head_dim in (64, 80, 96, 128, 256)
    for page in (1, 16, 32, 64)
    for group in range(1, 17)
    for kv_heads in (1 + (group + page) % 2,)
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("q_heads", "kv_heads", "head_dim", "page"), [*ATTENTION, *MATRIX])
def test_given_paged_keys_when_decoding_then_equal_the_reference(
    q_heads: int, kv_heads: int, head_dim: int, page: int, dtype: torch.dtype
) -> None:
    lengths = torch.tensor([1, 0, page, page + 1, 77, 257], dtype=torch.int32)
    table, k, v = pools_for(lengths.tolist(), page, kv_heads, head_dim, dtype)
    q = torch.randn(len(lengths), q_heads, head_dim).to(dtype)
    found = kernels.paged_decode_attention(q, k, v, table, lengths, head_dim**-0.5)
    clean_k, clean_v = k.nan_to_num(), v.nan_to_num()
    expected = reference.paged_decode_attention(q, clean_k, clean_v, table, lengths, head_dim**-0.5)
    assert_close("paged_decode_attention", found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("q_heads", "kv_heads", "head_dim", "page"), [*ATTENTION, *MATRIX])
def test_given_runs_after_prefixes_when_extended_then_equal_the_reference(
    q_heads: int, kv_heads: int, head_dim: int, page: int, dtype: torch.dtype
) -> None:
    starts, counts = [0, 5, 70, 9, 0, 64], [3, 1, 40, 0, 66, 2]
    ends = [start + count for start, count in zip(starts, counts, strict=True)]
    table, k, v = pools_for(ends, page, kv_heads, head_dim, dtype)
    offsets = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32)
    q = torch.randn(sum(counts), q_heads, head_dim).to(dtype)
    args = (table, torch.tensor(starts, dtype=torch.int32), offsets, head_dim**-0.5)
    found = kernels.prefix_extend_attention(q, k, v, *args)
    expected = reference.prefix_extend_attention(q, k.nan_to_num(), v.nan_to_num(), *args)
    assert_close("prefix_extend_attention", found, expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_given_a_sequence_when_its_neighbours_change_then_its_result_keeps_every_bit(
    dtype: torch.dtype,
) -> None:
    lengths = torch.tensor([300, 5, 129], dtype=torch.int32)
    table, k, v = pools_for(lengths.tolist(), 16, 2, 64, dtype)
    q = torch.randn(3, 6, 64).to(dtype)
    together = kernels.paged_decode_attention(q, k, v, table, lengths, 0.125)
    for at in range(3):
        width = -(-int(lengths[at]) // 16)
        alone = kernels.paged_decode_attention(
            q[at : at + 1],
            k,
            v,
            table[at : at + 1, :width].contiguous(),
            lengths[at : at + 1],
            0.125,
        )
        assert torch.equal(alone[0], together[at])


@pytest.mark.usefixtures("ordered_dots")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("cuts", [(37, 101), (1, 2, 63, 64, 65, 149)], ids=["few", "odd"])
def test_given_a_prompt_when_it_is_cut_elsewhere_then_every_query_keeps_every_bit(
    cuts: tuple[int, ...], dtype: torch.dtype
) -> None:
    table, k, v = pools_for([150], 16, 1, 64, dtype)
    q = torch.randn(150, 3, 64).to(dtype)

    def extended(*bounds: int) -> torch.Tensor:
        """Return the queries from the first bound to the last, a run between each two."""
        starts = torch.tensor(bounds[:-1], dtype=torch.int32)
        offsets = torch.tensor(bounds, dtype=torch.int32) - bounds[0]
        tables = table.repeat(len(bounds) - 1, 1)
        part = q[bounds[0] : bounds[-1]]
        return kernels.prefix_extend_attention(part, k, v, tables, starts, offsets, 0.125)

    whole = extended(0, 150)
    bounds = (0, *cuts, 150)
    chunks = [extended(*pair) for pair in itertools.pairwise(bounds)]
    assert torch.equal(torch.cat(chunks), whole)
    assert torch.equal(extended(*bounds), whole)


@pytest.mark.skipif(DEVICE != "cpu", reason="only the interpreter's dots are put in order")
@pytest.mark.usefixtures("ordered_dots")
def test_given_ordered_dots_when_rows_move_then_they_keep_every_bit() -> None:
    rows, columns = torch.randn(64, 32).numpy(), torch.randn(32, 48).numpy()
    whole = interpreted_dot(rows, columns)
    np.testing.assert_allclose(whole, rows @ columns, rtol=1e-5, atol=1e-5)
    for first in range(1, 64):
        assert np.array_equal(interpreted_dot(rows[first:], columns), whole[first:])


def drawn(logits: torch.Tensor, rows: list[dict[str, float]], **edits: object) -> list[int]:
    """Return the kernel's tokens, which must be the reference's."""
    plain: dict[str, float] = {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "number": 0.5,
    }
    full = [plain | row for row in rows]

    def column(name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.tensor([row[name] for row in full], dtype=dtype)

    rules = SamplingRules(
        temperature=column("temperature"),
        top_k=column("top_k", torch.int32),
        top_p=column("top_p"),
        min_p=column("min_p"),
        number=column("number", torch.float64),
        edits=LogitEdits(**edits) if edits else None,
    )
    expected = reference.sample(logits.clone(), rules).tolist()
    assert kernels.sample(logits, rules).tolist() == expected
    return expected


FILTERS: list[dict[str, float]] = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.3},
    {"top_k": 1},
    {"top_k": 7, "temperature": 1.7},
    {"top_p": 0.3},
    {"top_p": 0.0},
    {"top_p": 0.95, "top_k": 50},
    {"min_p": 0.1},
    {"min_p": 0.05, "top_p": 0.9, "temperature": 2.0},
    {"top_k": 10**6},
]
SLOW_VOCABULARIES = [
    pytest.param(vocab, number, marks=pytest.mark.slow)
    for vocab in (1, 2, 97, 4096, 4097, 8192, 49_152, 128_256)
    for number in (0.0, 0.37, 1 - 1e-9)
]


@pytest.mark.parametrize(("vocab", "number"), [(4100, 0.7), *SLOW_VOCABULARIES])
def test_given_every_filter_when_drawn_then_tokens_equal_the_reference(
    vocab: int, number: float
) -> None:
    rows = [rule | {"number": number} for rule in FILTERS]
    drawn(guarded(len(rows), vocab, dtype=torch.float32), rows)


def test_given_ties_where_a_filter_ends_when_drawn_then_low_ids_are_kept() -> None:
    logits = guarded(1, 4100, dtype=torch.float32)
    logits[:] = torch.arange(4100) % 3 - 1.0
    rule: dict[str, float] = {"top_k": 1500}
    numbers = (0.0, 0.94, 0.999)
    tokens = drawn(logits.repeat(3, 1), [rule | {"number": number} for number in numbers])
    # 1,366 tokens have the highest logit; 134 of the next complete the 1,500.
    assert all(token % 3 == 2 or (token % 3 == 1 and token < 3 * 134) for token in tokens)
    drawn(logits.repeat(3, 1), [{"top_p": 0.8, "number": number} for number in numbers])


def test_given_penalties_and_biases_when_drawn_then_tokens_equal_the_reference() -> None:
    logits = guarded(3, 600, dtype=torch.float32)
    seen = [torch.randperm(600)[:count].sort().values.int() for count in (0, 300, 5)]
    total = sum(len(part) for part in seen)
    added = torch.randn(total)
    added[::7] = float("-inf")
    edits = {
        "penalties": torch.tensor([[1.0, 0.0, 0.0], [1.3, 0.4, 0.2], [0.8, 0.0, 1.0]]),
        "offsets": torch.tensor([0, 0, 300, 305], dtype=torch.int32),
        "tokens": torch.cat(seen),
        "counts": torch.randint(-1, 4, (total,)).int(),
        "added": added,
        "longest": 300,
    }
    for number in (0.1, 0.6):
        drawn(logits.clone(), [{"number": number}] * 3, **edits)
    drawn(logits.clone(), [{"temperature": 0.0}] * 3, **edits)


def test_given_logits_that_are_no_numbers_when_drawn_then_tokens_equal_the_reference() -> None:
    inf, nan = float("inf"), float("nan")
    logits = torch.tensor(
        [[nan, 1.0, nan], [1.0, inf, 0.0], [-inf, -inf, -inf], [-0.0, 0.0, -1.0], [nan, nan, nan]]
    )
    for rule in ({"temperature": 0.0}, {}, {"top_k": 2}, {"min_p": 0.5}):
        drawn(logits.clone(), [rule] * 5)


def test_given_a_row_when_its_neighbours_change_then_it_draws_the_same_token() -> None:
    logits = torch.randn(3, 5000)
    rows = [FILTERS[1], FILTERS[4], FILTERS[8]]
    together = drawn(logits.clone(), rows)
    alone = [drawn(logits[at : at + 1].clone(), rows[at : at + 1])[0] for at in range(3)]
    assert alone == together


@pytest.mark.skipif(DEVICE != "cpu", reason="the builders make models on CPU")
def test_given_the_interpreted_kernels_when_a_model_runs_then_logits_equal_the_references(
    tmp_path: Path,
) -> None:
    from model_builders import open_engine, prompt, row, save_random

    save_random(tmp_path, "Qwen3", head_dim=16, num_hidden_layers=2)
    engines = [open_engine(tmp_path, kernels=choice) for choice in ("triton", "reference")]
    tokens = prompt(23)
    results = []
    for engine in engines:
        engine.logits(row(tokens[:9], [5, 6, 7, 8, 9, 10]))
        steps = [
            engine.logits(
                row(tokens[9:22], [5, 6, 7, 8, 9, 10], start=9), row(tokens[:6], [20, 21])
            ),
            engine.logits(row(tokens[22:], [5, 6, 7, 8, 9, 10], start=22), row([3], [30])),
        ]
        results.append(torch.cat(steps))
    torch.testing.assert_close(results[0], results[1], rtol=2e-5, atol=2e-5)


@pytest.fixture
def ordered_dots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter add up every element of a dot in one order, wherever it lies.

    Its own dot asks BLAS, and OpenBLAS's kernels for AVX2 (Haswell, Zen) add up the last rows of a
    tile otherwise than the first: a row's bits would change with its place, whatever the kernel.
    """

    def dot(
        self: object, a: TensorHandle, b: TensorHandle, d: TensorHandle, *_precision: object
    ) -> TensorHandle:
        found = np.zeros_like(d.data)
        for column, row in zip(a.data.T, b.data, strict=True):
            found += column[:, None].astype(found.dtype) * row.astype(found.dtype)
        return interpreter.TensorHandle(found + d.data, d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


def interpreted_dot(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float32]],
    columns: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return the dot as the interpreter has it, whatever is patched in."""
    a, b, zero = (
        interpreter.TensorHandle(data, tl.float32)
        for data in (rows, columns, np.zeros((len(rows), columns.shape[1]), np.float32))
    )
    return interpreter.interpreter_builder.create_dot(a, b, zero, None, None).data


def guarded(rows: int, columns: int, *, dtype: torch.dtype) -> torch.Tensor:
    """Return random rows that lie inside a larger tensor of NaN."""
    around = torch.full((rows + 2, columns + 8), float("nan"), dtype=dtype)
    inside = around[1 : rows + 1, :columns]
    inside.copy_(torch.randn(rows, columns))
    return inside


def pools_for(
    lengths: list[int], page: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (block table, keys, values); every slot that no sequence owns is NaN."""
    counts = [-(-length // page) for length in lengths]
    ids = (torch.randperm(sum(counts)) + 1).tolist()
    k = torch.full((len(ids) + 1, page, kv_heads, head_dim), float("nan"), dtype=dtype)
    v = k.clone()
    table = torch.zeros(len(lengths), max(counts), dtype=torch.int32)
    for line, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        own, ids = ids[:count], ids[count:]
        table[line, :count] = torch.tensor(own, dtype=torch.int32)
        for pool in (k, v):
            flat = torch.full((count * page, kv_heads, head_dim), float("nan"), dtype=dtype)
            flat[:length] = torch.randn(length, kv_heads, head_dim).to(dtype)
            pool[own] = flat.view(count, page, kv_heads, head_dim)
    return table, k, v


def assert_close(kernel: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    limit = TOLERANCES[kernel][DTYPE_NAMES[found.dtype]]
    torch.testing.assert_close(found, expected, rtol=limit, atol=limit)
