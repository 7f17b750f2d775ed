"""The launches a model of a given shape makes: kernel, argument types, constants, warps.

It knows shapes and the config table, and neither tensors nor a GPU: `ahead_of_time.py` compiles
what this lists. Integer arguments are given as values, because Triton specialises on them.
"""
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rampway_server.kernels import (
    configs,
    paged_decode_attention,
    prefix_extend_attention,
    rms_norm,
    rope_kv_write,
    silu_mul,
)

__all__ = ["SHAPES", "Launch", "Shape", "launches"]

_ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the kernels see of a model."""

    name: str
    hidden: int
    inner: int
    q_heads: int
    kv_heads: int
    head_dim: int
    page: int = 16


SHAPES = (
    Shape("SmolLM2-135M", 576, 1536, 9, 3, 64),
    Shape("Llama-3-8B", 4096, 14336, 32, 8, 128),
    Shape("Qwen3-0.6B", 1024, 3072, 16, 8, 128),
    Shape("head 96", 3072, 8192, 32, 32, 96),
    Shape("head 256", 2048, 16384, 8, 1, 256),
)


@dataclass(frozen=True, slots=True)
class Launch:
    """One compilation: `arguments` in order, a type name for pointers and floats, a value for ints."""

    kernel: Any
    arguments: dict[str, str | int]
    constants: dict[str, int | bool]
    num_warps: int
    num_stages: int = 3

    @property
    def name(self) -> str:
        """Return the kernel's name without decoration."""
        return str(self.kernel.fn.__name__).strip("_").removesuffix("_kernel")


def launches(shape: Shape, dtype: str) -> tuple[Launch, ...]:
    """Return every launch of a model of `shape` in `dtype` ("bf16", "fp16" or "fp32")."""
    data = f"*{dtype}"
    return (
        *_rms_norms(shape, data),
        _silu_mul(shape, data),
        _rope(shape, data),
        *_decode(shape, data, _ITEM_BYTES[dtype]),
        _extend(shape, data, _ITEM_BYTES[dtype]),
    )


def _rms_norms(shape: Shape, data: str) -> tuple[Launch, ...]:
    config = configs.rms_norm_config(shape.hidden)
    arguments: dict[str, str | int] = dict.fromkeys(
        ("x_ptr", "residual_ptr", "weight_ptr", "out_ptr"), data
    )
    strides = dict.fromkeys(("stride_x", "stride_residual", "stride_out"), shape.hidden)
    arguments |= strides | {"columns": shape.hidden, "eps": "fp32"}
    return tuple(
        Launch(
            rms_norm._rms_norm_kernel,  # noqa: SLF001
            arguments,
            {"HAS_RESIDUAL": residual, "BLOCK": config.block},
            config.num_warps,
        )
        for residual in (False, True)
    )


def _silu_mul(shape: Shape, data: str) -> Launch:
    config = configs.silu_mul_config(shape.inner)
    pointers: dict[str, str | int] = dict.fromkeys(("gate_ptr", "up_ptr", "out_ptr"), data)
    sizes: dict[str, str | int] = {
        "stride_in": 2 * shape.inner,
        "stride_out": shape.inner,
        "columns": shape.inner,
    }
    return Launch(
        silu_mul._silu_mul_kernel,  # noqa: SLF001
        pointers | sizes,
        {"BLOCK": config.block},
        config.num_warps,
    )


def _rope(shape: Shape, data: str) -> Launch:
    heads = shape.q_heads + 2 * shape.kv_heads
    config = configs.rope_config(heads, shape.head_dim)
    arguments: dict[str, str | int] = {
        "qkv_ptr": data,
        "cos_sin_ptr": "*fp32",
        "positions_ptr": "*i64",
        "slots_ptr": "*i64",
        "q_ptr": data,
        "k_pool_ptr": data,
        "v_pool_ptr": data,
        "stride_qkv": heads * shape.head_dim,
        "stride_q": shape.q_heads * shape.head_dim,
        "stride_slot": shape.kv_heads * shape.head_dim,
        "q_heads": shape.q_heads,
        "kv_heads": shape.kv_heads,
    }
    constants = {"HEAD_DIM": shape.head_dim, "HALF": config.half, "HEADS": config.heads}
    return Launch(
        rope_kv_write._rope_kv_write_kernel,  # noqa: SLF001
        arguments,
        constants,
        config.num_warps,
    )


def _decode(shape: Shape, data: str, itemsize: int) -> tuple[Launch, Launch]:
    group = shape.q_heads // shape.kv_heads
    config = configs.decode_config(group, shape.head_dim, itemsize)
    tables: dict[str, str | int] = {"table_ptr": "*i32", "lengths_ptr": "*i32"}
    partials: dict[str, str | int] = dict.fromkeys(
        ("partial_ptr", "maximum_ptr", "sum_ptr"), "*fp32"
    )
    pools: dict[str, str | int] = dict.fromkeys(("q_ptr", "k_pool_ptr", "v_pool_ptr"), data)
    split = Launch(
        paged_decode_attention._decode_split_kernel,  # noqa: SLF001
        pools
        | tables
        | partials
        | {
            "scale": "fp32",
            "stride_table": 7,
            "stride_slot": shape.kv_heads * shape.head_dim,
            "q_heads": shape.q_heads,
            "group": group,
            "splits": 5,
        },
        {
            "PAGE": shape.page,
            "HEAD_DIM": shape.head_dim,
            "ROWS": config.rows,
            "KEYS": config.keys,
            "SPLIT": config.split,
            "DEPTH": config.depth,
        },
        config.num_warps,
        config.num_stages,
    )
    merge = Launch(
        paged_decode_attention._decode_merge_kernel,  # noqa: SLF001
        partials | {"lengths_ptr": "*i32", "out_ptr": data, "q_heads": shape.q_heads, "splits": 5},
        {
            "HEAD_DIM": shape.head_dim,
            "SPLIT": config.split,
            "DEPTH": configs.power_of_two(shape.head_dim),
        },
        num_warps=1,
    )
    return split, merge


def _extend(shape: Shape, data: str, itemsize: int) -> Launch:
    group = shape.q_heads // shape.kv_heads
    config = configs.extend_config(group, shape.head_dim, itemsize)
    arguments: dict[str, str | int] = {
        "q_ptr": data,
        "k_pool_ptr": data,
        "v_pool_ptr": data,
        "table_ptr": "*i32",
        "starts_ptr": "*i32",
        "offsets_ptr": "*i32",
        "out_ptr": data,
        "scale": "fp32",
        "stride_table": 7,
        "stride_slot": shape.kv_heads * shape.head_dim,
        "q_heads": shape.q_heads,
        "runs": 3,
    }
    constants = {
        "GROUP": group,
        "PAGE": shape.page,
        "HEAD_DIM": shape.head_dim,
        "ROWS": config.rows,
        "KEYS": config.keys,
        "DEPTH": config.depth,
    }
    return Launch(
        prefix_extend_attention._prefix_extend_kernel,  # noqa: SLF001
        arguments,
        constants,
        config.num_warps,
        config.num_stages,
    )
