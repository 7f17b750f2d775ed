"""How far a Triton kernel may be from its torch reference: one table for tests, bench and docs.

It knows kernel and dtype names. Each value is an absolute and a relative bound at once; fp16 has
10 bits, bf16 7, and both sides round once at the end.
"""

from __future__ import annotations

__all__ = ["TOLERANCES"]

TOLERANCES = {
    "rms_norm": {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2},
    "rope_kv_write": {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2},
    "silu_mul": {"fp32": 2e-6, "fp16": 2e-3, "bf16": 1.6e-2},
    "paged_decode_attention": {"fp32": 5e-6, "fp16": 3e-3, "bf16": 2.4e-2},
    "prefix_extend_attention": {"fp32": 5e-6, "fp16": 3e-3, "bf16": 2.4e-2},
}
"""By kernel and dtype. `sample` has none: its tokens must be equal."""
