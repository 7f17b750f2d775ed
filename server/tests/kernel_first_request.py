"""Runs a model's first requests under a driver that stands for a GPU; prints what was not cached.

A process of its own, started by test_kernel_ahead_of_time.py: what Triton has compiled it keeps in
memory too. The model is real, its tensors lie on CPU, and only the launches are left out.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

from rampway_server.engine.batch import Batch, Row, Sampling
from rampway_server.kernels.dispatch import pin_environment
from rampway_server.kernels.shapes import SERVED, Shape
from rampway_server.model.config import ModelConfig, Rope
from rampway_server.model.kv_pool import KvPool
from rampway_server.model.linear import Linear
from rampway_server.model.llama import Layer, Llama, Weights
from rampway_server.model.runner import TorchRunner

CONTEXT, PAGES = 1024, 200


def model_of(shape: Shape, config: ModelConfig) -> tuple[Llama, KvPool]:
    """Return a model of one layer with the shape of `shape` and memory that nobody has written."""
    from rampway_server.kernels import compiled

    dtype, hidden, depth = torch.bfloat16, shape.hidden, shape.head_dim
    heads = (shape.q_heads + 2 * shape.kv_heads) * depth

    def linear(rows: int, columns: int) -> Linear:
        return Linear(torch.zeros(rows, columns, dtype=dtype))

    def norm(size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype)

    head_norm = norm(depth) if shape.head_norms else None
    layer = Layer(
        attn_norm=norm(hidden),
        qkv=linear(heads, hidden),
        q_norm=head_norm,
        k_norm=head_norm,
        o=linear(hidden, shape.q_heads * depth),
        ffn_norm=norm(hidden),
        gate_up=linear(2 * shape.inner, hidden),
        down=linear(hidden, shape.inner),
    )
    weights = Weights(
        embed=torch.zeros(shape.vocab, hidden, dtype=dtype),
        layers=(layer,),
        norm=norm(hidden),
        lm_head=linear(shape.vocab, hidden),
        cos_sin=torch.zeros(CONTEXT, depth),
    )
    size = (PAGES, shape.page, shape.kv_heads, depth)
    pool = KvPool(
        (torch.zeros(size, dtype=dtype),), (torch.zeros(size, dtype=dtype),), PAGES, shape.page
    )
    return Llama(config, weights, compiled), pool


def row(start: int, count: int, sampling: Sampling | None, **ids: Any) -> Row:
    pages = np.arange(1, 2 + (start + count) // 16, dtype=np.int32)
    return Row(np.zeros(count, np.int32), start, pages, sampling, **ids)


def steps() -> list[tuple[Row, ...]]:
    """Return steps of every kind: prompts, chunks, mixed, decode of odd and even sizes, penalties."""
    plain = Sampling(temperature=0.8, top_p=0.9, top_k=40, min_p=0.01)
    greedy = Sampling(temperature=0.0)
    penal = Sampling(repetition_penalty=1.1, logit_bias=((3, 1.0),), forbidden=(2,))
    seen = {name: np.arange(9, dtype=np.int32) for name in ("prompt_ids", "generated_ids")}
    return [
        (row(0, 1, greedy),),
        (row(0, 37, plain),),
        (row(16, 40, None), row(0, 16, plain)),
        (row(700, 5, plain), row(0, 64, greedy), row(15, 1, plain), row(256, 1, greedy)),
        *(
            tuple(row(position, 1, plain) for _ in range(n))
            for n in (1, 2, 16, 17)
            for position in (3, 255, 511)
        ),
        (row(20, 1, penal, **seen), row(20, 1, plain)),
    ]


def main(name: str, arch: int) -> None:
    pin_environment()
    from triton import knobs

    from rampway_server.kernels.stub_driver import pretend

    shape = next(one for one in SERVED if one.name == name)
    config = ModelConfig(
        architecture="qwen3",
        num_layers=1,
        hidden=shape.hidden,
        inner=shape.inner,
        q_heads=shape.q_heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        context_length=CONTEXT,
        rms_eps=1e-5,
        rope=Rope(),
        tied_embeddings=False,
    )
    looked_up: list[tuple[str, bool, str]] = []

    def listen(*, src: Any, cache_hit: bool, **_: Any) -> None:
        looked_up.append((src.name, cache_hit, f"{src.signature} {src.attrs} {src.constants}"))

    model, pool = model_of(shape, config)
    sizes: dict[str, Any] = {
        "context_length": CONTEXT,
        "max_num_seqs": 17,
        "max_num_batched_tokens": 128,
    }
    runner = TorchRunner(model, pool, device="cpu", **sizes)
    knobs.compilation.listener = listen
    with pretend(arch):
        for number, rows in enumerate(steps()):
            runner.run(Batch(number, rows))
    missed = [what for kernel, hit, what in looked_up if not hit]
    found = sorted({kernel for kernel, hit, _ in looked_up if hit})
    sys.stdout.write(json.dumps({"found": found, "missed": missed}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
