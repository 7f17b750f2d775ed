"""Answers in, figures out: every key of vLLM's and SGLang's serving benchmarks, and ours.

Percentiles come from raw samples, never from percentiles. Keys as in vLLM's `benchmarks/serve.py`
(commit def9ce85) and SGLang's `bench_serving.py` (commit 50a61368); where they name one figure
differently, both names are there.
"""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.bench.client import Answer

__all__ = ["Condition", "details_of", "figures_of", "render"]

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
_OPERATORS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_CONDITION = re.compile(r"\s*([a-z0-9_.]+)\s*(>=|<=|>|<)\s*(-?[0-9.]+(?:e-?[0-9]+)?)\s*")
_LABELS = (
    ("Successful requests", "completed"),
    ("Failed requests", "failed"),
    ("Benchmark duration (s)", "duration"),
    ("Total input tokens", "total_input_tokens"),
    ("Total generated tokens", "total_output_tokens"),
    ("Request throughput (req/s)", "request_throughput"),
    ("Request goodput (req/s)", "request_goodput"),
    ("Input token throughput (tok/s)", "input_throughput"),
    ("Output token throughput (tok/s)", "output_throughput"),
    ("Peak output token throughput (tok/s)", "max_output_tokens_per_s"),
    ("Total token throughput (tok/s)", "total_token_throughput"),
    ("Concurrency", "concurrency"),
    ("Peak concurrent requests", "max_concurrent_requests"),
    ("Cache hit rate", "cache_hit_rate"),
)
_SECTIONS = (
    ("End-to-End Latency", "e2e_latency", "E2E Latency"),
    ("Time to First Token", "ttft", "TTFT"),
    ("Time per Output Token (excl. 1st token)", "tpot", "TPOT"),
    ("Inter-Token Latency", "itl", "ITL"),
)


class Condition:
    """`KEY>NUMBER` of `--fail-if`: true is a failed run."""

    def __init__(self, text: str) -> None:
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise UsageError(
                f"--fail-if is no condition: got {text!r}, need p99_ttft_ms>500, for example"
            )
        self.text = text
        self.key, self._sign, number = match.groups()
        self._bound = float(number)
        if self.key not in figures_of([], 1.0, {}):
            raise UsageError(
                f"--fail-if names no figure: got {self.key!r}, need a key of the JSON, such as p99_ttft_ms"
            )

    def holds(self, figures: dict[str, Any]) -> bool:
        """Whether the run fails by it; a figure that could not be measured fails, too."""
        value = figures[self.key]
        if value is None or math.isnan(value):
            return True
        return bool(_OPERATORS[self._sign](value, self._bound))


def figures_of(
    answers: Sequence[Answer],
    duration: float,
    objectives: dict[str, float],
    percentiles: Sequence[float] = PERCENTILES,
) -> dict[str, Any]:
    """Return all figures; times in milliseconds, None where nothing was measured.

    `objectives` are bounds in milliseconds for ttft, tpot, e2el: goodput counts who meets all.
    """
    done = [answer for answer in answers if not answer.error]
    inputs = sum(answer.prompt_tokens for answer in done)
    outputs = sum(answer.output_tokens for answer in done)
    good = sum(_meets(answer, objectives) for answer in done)
    return {
        "duration": duration,
        "completed": len(done),
        "failed": len(answers) - len(done),
        "errors_by_kind": dict(Counter(answer.error for answer in answers if answer.error)),
        "total_input_tokens": inputs,
        "total_output_tokens": outputs,
        "total_output_tokens_retokenized": outputs,
        "request_throughput": len(done) / duration,
        "request_goodput": good / duration if objectives else None,
        "input_throughput": inputs / duration,
        "output_throughput": outputs / duration,
        "total_throughput": (inputs + outputs) / duration,
        "total_token_throughput": (inputs + outputs) / duration,
        "concurrency": sum(answer.latency for answer in done) / duration,
        "max_concurrent_requests": _peak(done),
        "max_output_tokens_per_s": _busiest_second(done),
        "accept_length": None,
        "cache_hit_rate": sum(answer.cached_tokens for answer in done) / inputs if inputs else None,
        **_statistics("ttft", [answer.ttft for answer in done], percentiles),
        **_statistics("tpot", [answer.tpot for answer in done], percentiles),
        **_statistics("itl", [gap for answer in done for gap in answer.gaps], percentiles),
        **_statistics("e2e_latency", [answer.latency for answer in done], percentiles),
        **_statistics("e2el", [answer.latency for answer in done], percentiles),
        **_statistics("send_delay", [answer.sent - answer.due for answer in done], percentiles),
    }


def details_of(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the lists of `--output-details`, one entry a request, by end; times in seconds."""
    return {
        "input_lens": [answer.prompt_tokens for answer in answers],
        "output_lens": [answer.output_tokens for answer in answers],
        "cached_tokens": [answer.cached_tokens for answer in answers],
        "start_times": [answer.due for answer in answers],
        "ttfts": [answer.ttft for answer in answers],
        "itls": [answer.gaps for answer in answers],
        "generated_texts": [answer.text for answer in answers],
        "errors": [answer.error for answer in answers],
    }


def render(figures: dict[str, Any]) -> str:
    """Return the block that SGLang's and vLLM's users know, 40 columns of label."""
    lines = [f"{' Serving Benchmark Result ':=^56}"]
    lines += [_line(label, figures[key]) for label, key in _LABELS if figures[key] is not None]
    lines += [_line(f"  {kind}", n) for kind, n in figures["errors_by_kind"].items()]
    for title, key, short in _SECTIONS:
        lines.append(f"{title:-^56}")
        for name in ("mean", "median", "p90", "p95", "p99", "max"):
            value = figures.get(f"{name}_{key}_ms")
            if value is not None:
                lines.append(_line(f"{name.title()} {short} (ms)", value))
    return "\n".join([*lines, "=" * 56])


def _line(label: str, value: float) -> str:
    return (
        f"{label + ':':<40} {value:<12.2f}"
        if isinstance(value, float)
        else f"{label + ':':<40} {value}"
    )


def _meets(answer: Answer, objectives: dict[str, float]) -> bool:
    values = {"ttft": answer.ttft, "tpot": answer.tpot, "e2el": answer.latency}
    # An answer of one token has no time between tokens to miss.
    return not any(1000 * values[name] > bound for name, bound in objectives.items())


def _statistics(name: str, seconds: list[float], percentiles: Sequence[float]) -> dict[str, Any]:
    values = 1000 * np.array([value for value in seconds if not math.isnan(value)])
    keys = {f"p{share:g}": share for share in sorted({*PERCENTILES, *percentiles})}
    if not len(values):
        empty = ("mean", "median", "std", "max", *keys)
        return {f"{key}_{name}_ms": None for key in empty}
    figures = {
        "mean": values.mean(),
        "median": np.median(values),
        "std": values.std(),
        "max": values.max(),
        **{key: np.percentile(values, share) for key, share in keys.items()},
    }
    return {f"{key}_{name}_ms": float(value) for key, value in figures.items()}


def _peak(done: list[Answer]) -> int:
    """Return how many requests were open at once, at most."""
    changes = sorted([(a.sent, 1) for a in done] + [(a.ended, -1) for a in done])
    return max(np.cumsum([change for _, change in changes]).tolist(), default=0)


def _busiest_second(done: list[Answer]) -> float:
    """Return the events with text in the second that had most."""
    seconds: Counter[int] = Counter()
    for answer in done:
        if answer.first is not None:
            times = answer.first + np.cumsum([0.0, *answer.gaps])
            seconds.update(times.astype(int).tolist())
    return float(max(seconds.values(), default=0))
