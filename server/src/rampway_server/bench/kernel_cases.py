"""The calls that `bench kernels` times: Llama-3-8B's shapes, large enough that caches do not help.

It knows tensors, bytes and the reference's answers; neither a clock nor a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from rampway_server.kernels import reference
from rampway_server.kernels.contract import SamplingRules
from rampway_server.kernels.tolerances import TOLERANCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rampway_server.kernels.contract import Kernels

__all__ = ["Case", "Sizes", "cases", "copy_case"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_PAGE = 16


@dataclass(frozen=True, slots=True)
class Case:
    """One call with its least cost; `peer` is timed in its place of the copy where it is set."""

    kernel: str
    name: str
    call: Callable[[], object]
    bytes_moved: int
    target: float
    error: Callable[[], float]
    """Return the largest difference from the reference."""
    allowed_error: float
    operations: int = 0
    peer: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the cases are; the defaults move at least 64 MiB."""

    tokens: int = 8192
    hidden: int = 4096
    inner: int = 14336
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    decode: tuple[tuple[int, int, float], ...] = (
        (256, 1024, 0.8),
        (64, 8192, 0.8),
        (1, 32768, 0.6),
    )
    """(sequences, keys of each, target share)."""
    extend: tuple[int, ...] = (2048, 8192)
    """Prompt tokens, without a prefix: what SDPA's causal mask can do too."""
    vocab: int = 128_256
    rows: int = 256


def copy_case(device: str, size: int = 1 << 30) -> tuple[int, Callable[[], object]]:
    """Return (bytes moved, call) of the device copy that is 100 %; `size` bytes are copied."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size, lambda: target.copy_(source)


def cases(
    kernels: Kernels, dtype: str, device: str, wanted: Iterable[str], sizes: Sizes | None = None
) -> Iterator[Case]:
    """Return the cases of the kernels named in `wanted`, one after another to bound their memory."""
    builders = {
        "rms_norm": _rms_norm,
        "rope_kv_write": _rope,
        "silu_mul": _silu_mul,
        "paged_decode_attention": _decode,
        "prefix_extend_attention": _extend,
        "sample": _sample,
    }
    torch.manual_seed(5)
    for name in wanted:
        yield from builders[name](kernels, dtype, device, sizes or Sizes())


def _normal(*shape: int, dtype: str, device: str) -> Tensor:
    return torch.randn(shape, dtype=_DTYPES[dtype], device=device)


def _apart(call: Callable[..., Tensor], expected: Callable[..., Tensor], *arguments: Any) -> float:
    """Return the largest difference, absolute below 1 and relative above, as tolerances mean it."""
    found, wide = call(*arguments).float(), expected(*arguments).float()
    return float(((found - wide).abs() / wide.abs().clamp(min=1.0)).max())


def _other_tokens(kernels: Kernels, logits: Tensor, rules: SamplingRules) -> float:
    return float((kernels.sample(logits, rules) != reference.sample(logits, rules)).sum())


def _rms_norm(kernels: Kernels, dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    x = _normal(sizes.tokens, sizes.hidden, dtype=dtype, device=device)
    weight = _normal(sizes.hidden, dtype=dtype, device=device)
    residual = torch.zeros_like(x)
    for name, passes, extra in (("", 2, ()), ("with residual", 4, (residual,))):
        yield Case(
            kernel="rms_norm",
            name=f"{sizes.tokens} x {sizes.hidden} {name}".strip(),
            call=partial(kernels.rms_norm, x, weight, 1e-5, *extra),
            bytes_moved=passes * x.numel() * x.element_size(),
            target=0.85,
            error=partial(_apart, kernels.rms_norm, reference.rms_norm, x, weight, 1e-5),
            allowed_error=TOLERANCES["rms_norm"][dtype],
        )


def _silu_mul(kernels: Kernels, dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    x = _normal(sizes.tokens // 2, 2 * sizes.inner, dtype=dtype, device=device)
    yield Case(
        kernel="silu_mul",
        name=f"{x.shape[0]} x {sizes.inner}",
        call=lambda: kernels.silu_mul(x),
        bytes_moved=x.numel() // 2 * 3 * x.element_size(),
        target=0.85,
        error=partial(_apart, kernels.silu_mul, reference.silu_mul, x),
        allowed_error=TOLERANCES["silu_mul"][dtype],
    )


def _rope(kernels: Kernels, dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    tokens, depth = sizes.tokens, sizes.head_dim
    width = (sizes.q_heads + 2 * sizes.kv_heads) * depth
    qkv = _normal(tokens, width, dtype=dtype, device=device)
    angles = torch.rand(tokens, depth // 2, device=device) * 6
    cos_sin = torch.cat((angles.cos(), angles.sin()), dim=1)
    positions = torch.arange(tokens, device=device)
    slots = torch.randperm(tokens, device=device) + _PAGE
    shape = (-(-tokens // _PAGE) + 1, _PAGE, sizes.kv_heads, depth)
    pools = [torch.zeros(shape, dtype=qkv.dtype, device=device) for _ in range(2)]
    arguments = (qkv, cos_sin, positions, slots, *pools)
    yield Case(
        kernel="rope_kv_write",
        name=f"{tokens} tokens",
        call=lambda: kernels.rope_kv_write(*arguments),
        bytes_moved=2 * qkv.numel() * qkv.element_size() + 4 * cos_sin.numel(),
        target=0.8,
        error=partial(_apart, kernels.rope_kv_write, reference.rope_kv_write, *arguments),
        allowed_error=TOLERANCES["rope_kv_write"][dtype],
    )


def _paged(sequences: int, keys: int, dtype: str, device: str, sizes: Sizes) -> tuple[Tensor, ...]:
    """Return pools of random pages and a table of them in random order."""
    each = -(-keys // _PAGE)
    shape = (sequences * each + 1, _PAGE, sizes.kv_heads, sizes.head_dim)
    table = (torch.randperm(sequences * each, device=device) + 1).int().view(sequences, each)
    return *(_normal(*shape, dtype=dtype, device=device) for _ in range(2)), table


def _decode(kernels: Kernels, dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    for sequences, keys, target in sizes.decode:
        k, v, table = _paged(sequences, keys, dtype, device, sizes)
        q = _normal(sequences, sizes.q_heads, sizes.head_dim, dtype=dtype, device=device)
        lengths = torch.full((sequences,), keys, dtype=torch.int32, device=device)
        arguments = (q, k, v, table, lengths, sizes.head_dim**-0.5)
        # The reference gathers all pages: one sequence is enough to compare.
        first = (q[:1], k, v, table[:1], lengths[:1], sizes.head_dim**-0.5)
        yield Case(
            kernel="paged_decode_attention",
            name=f"{sequences} x {keys} keys",
            call=partial(kernels.paged_decode_attention, *arguments),
            bytes_moved=2 * sequences * keys * sizes.kv_heads * sizes.head_dim * k.element_size(),
            target=target,
            error=partial(
                _apart, kernels.paged_decode_attention, reference.paged_decode_attention, *first
            ),
            allowed_error=TOLERANCES["paged_decode_attention"][dtype],
        )


def _extend(kernels: Kernels, dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    for tokens in sizes.extend:
        k, v, table = _paged(1, tokens, dtype, device, sizes)
        q = _normal(tokens, sizes.q_heads, sizes.head_dim, dtype=dtype, device=device)
        starts = torch.zeros(1, dtype=torch.int32, device=device)
        offsets = torch.tensor([0, tokens], dtype=torch.int32, device=device)
        arguments = (q, k, v, table, starts, offsets, sizes.head_dim**-0.5)
        dense = [
            pool[table[0].long()].flatten(0, 1)[:tokens].transpose(0, 1).unsqueeze(0).contiguous()
            for pool in (k, v)
        ]
        queries = q.transpose(0, 1).unsqueeze(0).contiguous()
        yield Case(
            kernel="prefix_extend_attention",
            name=f"prompt of {tokens}",
            call=partial(kernels.prefix_extend_attention, *arguments),
            bytes_moved=(2 * q.numel() + 2 * dense[0].numel()) * q.element_size(),
            # Half of all pairs are masked, and no one computes them.
            operations=2 * sizes.q_heads * sizes.head_dim * tokens * (tokens + 1),
            target=0.6,
            error=partial(
                _apart,
                kernels.prefix_extend_attention,
                reference.prefix_extend_attention,
                *arguments,
            ),
            allowed_error=TOLERANCES["prefix_extend_attention"][dtype],
            peer=partial(
                functional.scaled_dot_product_attention,
                queries,
                dense[0],
                dense[1],
                is_causal=True,
                enable_gqa=True,
            ),
        )


def _sample(kernels: Kernels, _dtype: str, device: str, sizes: Sizes) -> Iterator[Case]:
    logits = 3 * torch.randn(sizes.rows, sizes.vocab, device=device)
    numbers = torch.rand(sizes.rows, dtype=torch.float64, device=device)
    for name, top_k, top_p in (("plain", 0, 1.0), ("top-k 50, top-p 0.9", 50, 0.9)):
        rules = SamplingRules(
            temperature=torch.full((sizes.rows,), 0.8, device=device),
            top_k=torch.full((sizes.rows,), top_k, dtype=torch.int32, device=device),
            top_p=torch.full((sizes.rows,), top_p, device=device),
            min_p=torch.zeros(sizes.rows, device=device),
            number=numbers,
        )
        yield Case(
            kernel="sample",
            name=f"{sizes.rows} x {sizes.vocab} {name}",
            call=partial(kernels.sample, logits, rules),
            bytes_moved=4 * logits.numel(),
            target=0.5,
            error=partial(_other_tokens, kernels, logits, rules),
            # A number may lie within rounding of where a token's share ends.
            allowed_error=sizes.rows / 100,
        )
