"""The set of kernels in Triton; importing it imports triton.

It only collects: one kernel is one file, and `reference.py` says what each must return.
"""

from rampway_server.kernels.paged_decode_attention import paged_decode_attention
from rampway_server.kernels.prefix_extend_attention import prefix_extend_attention
from rampway_server.kernels.rms_norm import rms_norm
from rampway_server.kernels.rope_kv_write import rope_kv_write
from rampway_server.kernels.sample import sample
from rampway_server.kernels.silu_mul import silu_mul

__all__ = [
    "NAME",
    "paged_decode_attention",
    "prefix_extend_attention",
    "rms_norm",
    "rope_kv_write",
    "sample",
    "silu_mul",
]

NAME = "triton"
