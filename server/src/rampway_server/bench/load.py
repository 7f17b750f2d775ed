"""What `bench serve` sends and when: synthetic texts, shared prefixes, conversations, public traces.

It knows no server: tokens are made-up ids, and a conversation is its turns.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.bench.workloads import read_trace, texts_of
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["DATASETS", "Conversation", "Turn", "load_of"]

DATASETS = ("random", "generated-shared-prefix", "multi-turn", "mooncake", "azure", "jsonl")
FIRST_ID = 16
"""Ids below are special tokens in many vocabularies."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is added to the conversation, and how many tokens the answer has."""

    prompt: str | tuple[int, ...]
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """One user's turns; the first is due `seconds` after the start, each other when it can be."""

    seconds: float
    turns: tuple[Turn, ...]


def load_of(args: argparse.Namespace) -> list[Conversation]:
    """Return all conversations, by due time; equal seeds give equal loads."""
    random = np.random.default_rng(args.seed)
    made = {
        "random": _random,
        "generated-shared-prefix": _shared_prefix,
        "multi-turn": _multi_turn,
        "mooncake": _mooncake,
        "azure": _azure,
        "jsonl": _jsonl,
    }[args.dataset_name](args, random)
    if not made:
        raise UsageError(
            "the load is empty: need --num-prompts of 1 or more, and a data set with requests"
        )
    if args.use_trace_timestamps:
        return [
            Conversation(one.seconds * args.trace_slowdown, one.turns)
            for one in sorted(made, key=lambda one: one.seconds)
        ]
    return [
        Conversation(due, one.turns)
        for due, one in zip(_arrivals(args, random, len(made)), made, strict=True)
    ]


def _arrivals(args: argparse.Namespace, random: np.random.Generator, count: int) -> list[float]:
    """Return due times: a gamma process of the rate and burstiness, Poisson for burstiness 1."""
    if math.isinf(args.request_rate):
        return [0.0] * count
    gaps = random.gamma(args.burstiness, 1 / (args.request_rate * args.burstiness), count)
    due: list[float] = (np.cumsum(gaps) - gaps[0]).tolist()
    return due


def _random(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    return [
        _single(
            _tokens(args, random, _length(args.random_input_len, args, random)),
            _length(args.random_output_len, args, random),
        )
        for _ in range(args.num_prompts)
    ]


def _shared_prefix(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    prefixes = [
        _tokens(args, random, args.gsp_system_prompt_len) for _ in range(args.gsp_num_groups)
    ]
    made = [
        _single(prefix + _tokens(args, random, args.gsp_question_len), args.gsp_output_len)
        for _ in range(args.gsp_prompts_per_group)
        for prefix in prefixes
    ]
    order = random.permutation(len(made))
    return [made[at] for at in order[: args.num_prompts]]


def _multi_turn(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    """Text, because a turn holds the answers before it; a letter is a token to a byte tokenizer."""

    def question() -> str:
        letters = random.integers(ord("a"), ord("z") + 1, args.random_input_len, dtype=np.uint8)
        text: str = letters.tobytes().decode("ascii")
        return text

    return [
        Conversation(
            0.0,
            tuple(Turn(question(), args.random_output_len) for _ in range(args.num_turns)),
        )
        for _ in range(args.num_prompts)
    ]


def _mooncake(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    del random
    arrivals = read_trace(_path(args), args.num_prompts)
    return [
        Conversation(arrival.seconds, (Turn(_ids(args, tokens), max(1, arrival.output_length)),))
        for arrival, tokens in zip(arrivals, texts_of(arrivals), strict=True)
    ]


def _azure(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    path = _path(args)
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = list(islice(csv.DictReader(lines), args.num_prompts))
        times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
        sizes = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in rows]
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(
            path, "columns TIMESTAMP, ContextTokens, GeneratedTokens", error
        ) from error
    return [
        Conversation(
            (time - times[0]).total_seconds(),
            (Turn(_tokens(args, random, max(1, prompt)), max(1, answer)),),
        )
        for time, (prompt, answer) in zip(times, sizes, strict=True)
    ]


def _jsonl(args: argparse.Namespace, random: np.random.Generator) -> list[Conversation]:
    del random
    path = _path(args)
    try:
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in islice(lines, args.num_prompts)]
        return [
            Conversation(
                float(row.get("timestamp", 0)) / 1000,
                (Turn(str(row["prompt"]), int(row.get("output_tokens", args.random_output_len))),),
            )
            for row in rows
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(
            path, 'JSON lines with "prompt", and "output_tokens", "timestamp" in ms', error
        ) from error


def _unreadable(path: Path, need: str, error: Exception) -> UsageError:
    return UsageError(f"--dataset-path cannot be read: got {str(path)!r} ({error!r}), need {need}")


def _path(args: argparse.Namespace) -> Path:
    if args.dataset_path is None:
        raise UsageError(f"--dataset-name {args.dataset_name} needs --dataset-path: name the file")
    path: Path = args.dataset_path
    return path.expanduser()


def _length(mean: int, args: argparse.Namespace, random: np.random.Generator) -> int:
    """Return a length drawn evenly from mean * (1 - ratio) to mean * (1 + ratio), at least 1."""
    spread = int(mean * args.random_range_ratio)
    return max(1, int(random.integers(mean - spread, mean + spread + 1)))


def _tokens(args: argparse.Namespace, random: np.random.Generator, count: int) -> tuple[int, ...]:
    return tuple(random.integers(FIRST_ID, args.vocab_size, count).tolist())


def _ids(args: argparse.Namespace, tokens: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple((FIRST_ID + tokens % (args.vocab_size - FIRST_ID)).tolist())


def _single(prompt: tuple[int, ...], output_tokens: int) -> Conversation:
    return Conversation(0.0, (Turn(prompt, output_tokens),))
