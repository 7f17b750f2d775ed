"""Block sizes and warps of every kernel: a plain table chosen by shape, instead of autotuning.

It knows shapes only, so that the same call always compiles and runs the same code: results do not
depend on the batch, and everything can be compiled ahead of time.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DecodeConfig",
    "ExtendConfig",
    "RowConfig",
    "SampleConfig",
    "TileConfig",
    "decode_config",
    "extend_config",
    "power_of_two",
    "rms_norm_config",
    "rope_config",
    "sample_config",
    "silu_mul_config",
]

_SMALLEST_DOT = 16  # rows that a tensor core tile needs at least


@dataclass(frozen=True, slots=True)
class RowConfig:
    """One program handles `block` columns of one row."""

    block: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class TileConfig:
    """One program handles `heads` heads of one token, each padded to `half` pairs."""

    heads: int
    half: int
    num_warps: int


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """One program handles one key head's query group over `split` keys, `keys` at a time."""

    rows: int
    """Query heads of the group, padded."""
    keys: int
    split: int
    depth: int
    """Head size, padded."""
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class ExtendConfig:
    """One program handles `rows` (query, head of the group) pairs over keys in tiles of `keys`."""

    rows: int
    keys: int
    depth: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """A row of logits is cut into chunks of `chunk`, at most `chunks` of them."""

    chunk: int
    chunks: int
    edits: int
    """Edited logits a program."""
    num_warps: int


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least `size`, for sizes from 1."""
    return 1 << (size - 1).bit_length()


def rms_norm_config(columns: int) -> RowConfig:
    """Return the config for rows of `columns`: the whole row in registers."""
    block = power_of_two(columns)
    return RowConfig(block, _warps(block, per_warp=512))


def silu_mul_config(columns: int) -> RowConfig:
    """Return the config for `columns` output columns."""
    block = min(1024, power_of_two(columns))
    return RowConfig(block, _warps(block, per_warp=256))


def rope_config(heads: int, head_dim: int) -> TileConfig:
    """Return the config for `heads` heads, queries, keys and values together."""
    half = power_of_two(head_dim // 2)
    tile = min(power_of_two(heads), max(1, 1024 // half))
    return TileConfig(tile, half, _warps(tile * half, per_warp=256))


def sample_config(vocab: int) -> SampleConfig:
    """Return the config for a vocabulary: one for all up to 262,144 tokens."""
    chunk = 4096
    return SampleConfig(chunk, max(64, power_of_two(-(-vocab // chunk))), edits=256, num_warps=8)


def decode_config(group: int, head_dim: int, itemsize: int) -> DecodeConfig:
    """Return the config for `group` query heads a key head.

    The split is fixed, never taken from the number of programs: where a sum is cut must not
    depend on the batch.
    """
    depth = max(_SMALLEST_DOT, power_of_two(head_dim))
    keys = 64 if depth * itemsize <= 256 else 32
    return DecodeConfig(
        rows=max(_SMALLEST_DOT, power_of_two(group)),
        keys=keys,
        split=256,
        depth=depth,
        num_warps=4,
        num_stages=2,
    )


def extend_config(group: int, head_dim: int, itemsize: int) -> ExtendConfig:
    """Return the config for `group` query heads a key head."""
    depth = max(_SMALLEST_DOT, power_of_two(head_dim))
    row_bytes = depth * itemsize
    tile = 64 if row_bytes <= 256 else 32 if row_bytes <= 512 else 16
    return ExtendConfig(
        rows=max(tile, power_of_two(group)),
        # Twice as many would spill: 64 keys of 128 columns on compute capability 8.9, 32 of 256
        # columns on 8.0.
        keys=min(tile, 64 if row_bytes <= 128 else 32 if row_bytes <= 256 else 16),
        depth=depth,
        num_warps=4,
        num_stages=2,
    )


def _warps(elements: int, *, per_warp: int) -> int:
    return max(1, min(16, power_of_two(elements) // per_warp))
