"""What the rest of the server asks of a model: options in, a loaded model or the facts of its files out.

It knows no tensors and imports no torch, so that flags can be checked in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from rampway_server.engine.batch import Runner
    from rampway_server.engine.tokenizer import Tokenizer

__all__ = [
    "DeviceName",
    "DtypeName",
    "KernelChoice",
    "LoadOptions",
    "LoadedModel",
    "ModelFileInfo",
    "WeightFormat",
]

DeviceName = Literal["cpu", "cuda"]
DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
KernelChoice = Literal["auto", "reference", "triton"]
WeightFormat = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How to load a model; the defaults serve a small model on CPU."""

    device: DeviceName = "cpu"
    dtype: DtypeName = "auto"
    """Of weights, activations and KV pool; auto is the faster one measured for the device."""
    page_size: int = 16
    num_pages: int | None = None
    """Pages of the KV pool, reserved page 0 included; None sizes the pool from `mem_fraction`."""
    mem_fraction: float = 0.5
    """Share of the memory that is free after loading which the KV pool may take."""
    context_length: int | None = None
    """None takes the model's own; more than the model's own is refused."""
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 2048
    deterministic: bool = False
    """True computes every row alone of its neighbours, so text does not depend on the batch."""
    threads: int | None = None
    """CPU threads of the tensor library; None takes the cores this process may use."""
    kernels: KernelChoice = "auto"
    """auto is Triton on cuda and the torch references on cpu."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFileInfo:
    """What the files of a model say, read without loading weights."""

    path: Path
    format: WeightFormat
    model_id: str
    architecture: str
    context_length: int
    vocab_size: int
    num_parameters: int
    weight_bytes: int
    """Bytes of the tensors as they lie in the files."""
    tensor_types: dict[str, int]
    """Tensor type to number of tensors, for example {"Q4_1": 210, "F32": 61}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that is ready to run batches, except for `runner.warm_up()`."""

    runner: Runner
    tokenizer: Tokenizer
    model_id: str
    info: dict[str, object] = field(default_factory=dict)
    """JSON-able facts for `/model_info` and `/server_info`: architecture, dtype, sizes, kernels."""
