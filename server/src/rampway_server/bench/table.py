"""Figures in, tables and verdicts out. Knows no process and no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rampway_server.bench.cache import Results

__all__ = ["Claim", "claims_of", "render"]

COLUMNS = ("rust", "rust-i64", "python", "sglang-rust", "sglang-python", "vllm")
TITLES = ("ours", "ours, i64", "our reference", "SGLang Rust", "SGLang Python", "vLLM")
NODE_NS = 25
"""What a node may cost on top of comparing its tokens."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A target, what was measured, and whether it holds. Units are the target's own."""

    what: str
    got: float
    need: float
    unit: str
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the target holds."""
        return self.got >= self.need if self.at_least else self.got <= self.need


def claims_of(results: Results) -> list[Claim]:
    """Return every target whose figures were measured."""
    return [*_core_claims(results), *_python_claims(results), *_trace_claims(results)]


def _core_claims(results: Results) -> Iterable[Claim]:
    core = results.core
    hits = {
        "hit-1": "hit 8,192 in 1 node",
        "hit-16": "hit 8,192 in 16 nodes",
        "hit-512": "hit 8,192 in a chain of 512 nodes",
        "hit-forked-512": "hit 8,192 in 512 nodes, each with a sibling",
        "hit-long": "hit 131,072 in 1 node",
    }
    for name, what in hits.items():
        if name in core:
            row = core[name]
            bound = 1.3 * row["floor_ns"] + NODE_NS * row["nodes"]
            yield Claim(f"Rust: {what}", row["ns"], bound, "ns")
    bounds = {
        "hit-cold": ("hit 8,192, cold", 6000.0),
        "miss": ("miss among 10", 50.0),
        "miss-wide": ("miss among 100,000 siblings", 50.0),
        "evict-40k": ("evict 64 tokens at 40,000 leaves", 500.0),
        "evict-1m": ("evict 64 tokens at 1,000,000 leaves", 500.0),
    }
    for name, (what, bound) in bounds.items():
        if name in core:
            yield Claim(f"Rust: {what}", core[name]["ns"], bound, "ns")
    if "lock-512" in core:
        row = core["lock-512"]
        yield Claim("Rust: lock + unlock, a node", row["ns"] / row["nodes"], 5.0, "ns")
    if "evict-1m" in core and "evict-1k" in core:
        ratio = core["evict-1m"]["ns"] / core["evict-1k"]["ns"]
        yield Claim("Rust: evict at 1,000,000 leaves / at 1,000", ratio, 3.0, "times")


def _python_claims(results: Results) -> Iterable[Claim]:
    bounds = (
        ("hit 8,192 tokens", "rust", 1300.0),
        ("hit 8,192 in 16 nodes", "rust", 1600.0),
        ("hit 8,192 tokens", "rust-i64", 2500.0),
        ("hit 8,192, cold", "rust", 6000.0),
        ("miss at token 0 of 8,192", "rust", 200.0),
        ("evict 64, 40,000 leaves", "rust", 500.0),
    )
    for case, name, bound in bounds:
        got = results.cases.get(case, {}).get(name)
        if got is not None:
            ids = ", 64-bit ids" if name == "rust-i64" else ""
            yield Claim(f"Python: {case}{ids}", got, bound, "ns")


def _trace_claims(results: Results) -> Iterable[Claim]:
    for trace, times in results.replay_us.items():
        if "conversation" in trace and "rust" in times:
            yield Claim(f"Python: replay {trace}, a request", times["rust"], 12.0, "us")
    for trace, rates in results.hit_rate.items():
        if "rust" in rates and "vllm" in rates:
            yield Claim(
                f"hit rate of {trace}, vLLM's or more",
                rates["rust"],
                rates["vllm"],
                "",
                at_least=True,
            )


def render(results: Results, claims: Sequence[Claim]) -> str:
    """Return all tables as Markdown."""
    machine = ", ".join(f"{key} {value}" for key, value in results.machine.items())
    parts = [
        f"{machine}; {results.rounds} rounds in turns, medians",
        _table(("lookup and eviction", *TITLES), _case_rows(results)),
    ]
    if results.core:
        rows = [
            (name, _time(row["ns"]), _time(row["floor_ns"]), f"{row['nodes']:.0f}")
            for name, row in results.core.items()
        ]
        parts.append(_table(("Rust alone", "time", "comparing as many tokens", "nodes"), rows))
    if results.replay_us:
        parts.append(_table(("trace", *TITLES), list(_trace_rows(results))))
    rows = [
        (claim.what, _value(claim.got, claim.unit), _bound(claim), "yes" if claim.met else "NO")
        for claim in claims
    ]
    parts.append(_table(("target", "measured", "must be", "met"), rows))
    parts += [f"skipped: {what}: {why}" for what, why in results.skipped.items()]
    return "\n\n".join(parts)


def _case_rows(results: Results) -> list[tuple[str, ...]]:
    return [
        (case, *(_time(times[name]) if name in times else "-" for name in COLUMNS))
        for case, times in results.cases.items()
    ]


def _trace_rows(results: Results) -> Iterable[tuple[str, ...]]:
    for trace, times in results.replay_us.items():
        yield (
            f"{trace}, a request",
            *(f"{times[name]:.1f} us" if name in times else "-" for name in COLUMNS),
        )
        rates = results.hit_rate.get(trace, {})
        yield (
            f"{trace}, hit rate",
            *(f"{rates[name]:.4f}" if name in rates else "-" for name in COLUMNS),
        )
        parity = results.parity.get(trace, {})
        yield (
            f"{trace}, same hits as ours without eviction",
            *(("yes" if parity[name] else "NO") if name in parity else "-" for name in COLUMNS),
        )


def _time(ns: float) -> str:
    return f"{ns:.0f} ns" if ns < 1000 else f"{ns / 1000:.2f} us"


def _value(got: float, unit: str) -> str:
    if unit == "ns":
        return f"{got:.1f} ns" if got < 10 else _time(got)
    return f"{got:.4f}" if not unit else f"{got:.1f} {unit}"


def _bound(claim: Claim) -> str:
    sign = "≥" if claim.at_least else "≤"
    return f"{sign} {_value(claim.need, claim.unit)}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in (titles, *rows)
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
