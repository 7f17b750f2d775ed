"""Recomputes stored verdicts from stored evidence, offline: the numbers must agree with what was decided.

It reads nothing but the object; whoever has its YAML can repeat this years later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from rampway_operator.cli.session import CommandFailed
from rampway_operator.core.looks import Bounds
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.spec import Objective
from rampway_operator.core.state import Evidence, State, VerdictRecord
from rampway_operator.core.status import state_from_status
from rampway_operator.core.verdict import judged
from rampway_operator.core.wording import Shown, natural, title

__all__ = ["Explanation", "Line", "explanation"]


@dataclass(frozen=True, slots=True)
class Line:
    """One objective: what was stored, and what the stored evidence says when it is judged again."""

    objective: str
    title: str
    stored: str
    recomputed: str
    windows: int
    estimate: float | None
    low: float | None
    high: float | None
    alpha_spent: float
    message: str
    differences: tuple[str, ...] = ()
    """Numbers of the stored verdict that the stored evidence does not give, with both values."""

    @property
    def agrees(self) -> bool:
        """Whether the stored verdict follows from the stored evidence, to the last digit of its numbers."""
        return self.stored == self.recomputed and not self.differences


@dataclass(frozen=True, slots=True)
class Explanation:
    """All objectives of the rollout under way, and the decisions so far."""

    lines: tuple[Line, ...]
    approval: str
    state: State

    @property
    def agrees(self) -> bool:
        """Whether every stored verdict follows from its evidence."""
        return all(line.agrees for line in self.lines)

    def as_data(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "agrees": self.agrees,
            "approval": self.approval,
            "objectives": [
                {field: getattr(line, field) for field in Line.__dataclass_fields__}
                | {"agrees": line.agrees}
                for line in self.lines
            ],
        }

    def as_text(self) -> RenderableType:
        """For people."""
        if not self.lines:
            return Text("no evidence is stored: no rollout is being judged (see history)")
        blocks: list[RenderableType] = []
        for line in self.lines:
            told = "; ".join((line.recomputed, *line.differences))
            word = "follows" if line.agrees else f"DOES NOT FOLLOW (recomputed: {told})"
            blocks.append(
                Text(f"{line.objective}: {line.stored}, {word} from {line.windows} windows")
            )
            bounds = f"[{_number(line.low)}, {_number(line.high)}]"
            blocks.append(
                Text(
                    f"  score {_number(line.estimate)} in {bounds}, alpha spent {line.alpha_spent:.4g}\n"
                    f"  {line.message}"
                )
            )
        return Group(*blocks)


def explanation(found: Mapping[str, Any]) -> Explanation:
    """What the object's status says about its rollout. Raises CommandFailed when its spec is not valid."""
    try:
        spec = parse(found)
    except InvalidSpec as error:
        raise CommandFailed(f"the spec is not valid: {error}") from error
    state = state_from_status(found.get("status"))
    rollout = state.rollout
    if rollout is None:
        return Explanation((), "", state)
    evidence = {item.objective: item for item in rollout.evidence}
    objectives = {item.name: item for item in spec.analysis.objectives}
    lines = [
        _line(objectives[record.objective], evidence[record.objective], record)
        for record in rollout.verdicts
        if record.objective in objectives and record.objective in evidence
    ]
    return Explanation(tuple(lines), rollout.approval, state)


def _line(objective: Objective, evidence: Evidence, record: VerdictRecord) -> Line:
    verdict, bounds = judged(objective, evidence)
    return Line(
        objective=objective.name,
        title=title(objective),
        stored=record.verdict.value,
        recomputed=verdict.value,
        windows=evidence.sums.windows,
        estimate=_of(bounds, "estimate"),
        low=_of(bounds, "low"),
        high=_of(bounds, "high"),
        alpha_spent=evidence.alpha_spent,
        message=record.message,
        differences=_differences(record, evidence, natural(objective, evidence, bounds))
        if bounds is not None
        else (),
    )


def _differences(record: VerdictRecord, evidence: Evidence, shown: Shown | None) -> tuple[str, ...]:
    """The numbers that differ; those that are not finite are not stored."""
    sums = evidence.sums
    pairs: list[tuple[str, float | None, float | None]] = [
        ("n", record.n, round(sums.rc)),
        ("nReference", record.n_reference, round(sums.rr)),
        ("windows", record.windows, sums.windows),
    ]
    if shown is not None:
        low, high = (v if math.isfinite(v) else None for v in (shown.low, shown.high))
        pairs += [
            ("estimate", record.estimate, shown.estimate),
            ("low", record.low, low),
            ("high", record.high, high),
            ("margin", record.margin, shown.margin),
        ]
    return tuple(
        f"{name} stored {stored}, recomputed {recomputed}"
        for name, stored, recomputed in pairs
        if stored != recomputed
    )


def _of(bounds: Bounds | None, name: str) -> float | None:
    return None if bounds is None else float(getattr(bounds, name))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
