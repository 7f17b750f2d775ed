"""What the windows say of every objective, and what that means for the step.

It does not know how windows were measured, nor what the rollout does with its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rampway_operator.core.observed import Window
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Evidence, Rollout, Verdict, VerdictRecord

__all__ = ["Analysed", "update"]


@dataclass(frozen=True, slots=True)
class Analysed:
    """The evidence with the new windows folded in, and what it says.

    Store `evidence` and `verdicts` in the rollout. `outcome`: FAIL if a blocking objective failed, PASS if
    the step's objectives have what this step asks of them, else UNDECIDED. `failing` names the objectives
    behind a FAIL. `message` is one sentence with numbers, for status and the event.
    """

    evidence: tuple[Evidence, ...]
    verdicts: tuple[VerdictRecord, ...]
    outcome: Verdict
    failing: tuple[str, ...]
    message: str


def update(
    spec: Spec,
    rollout: Rollout,
    windows: Sequence[Window],
    *,
    weight: int,
    final: bool,
    objectives: tuple[str, ...] = (),
) -> Analysed:
    """Evidence, verdicts and outcome of the current step after `windows`, oldest first; `()` is fine.

    `weight` is the verified share of the candidate in percent; at 100 (the bake) only objectives with an
    absolute limit are judged. `final` says that this is the last analysis before 100 %, which needs what
    `require` asks; earlier ones need no Fail and `minSamples` new samples. `objectives` names those that
    decide this step (empty: all); the others collect evidence. Steps are told apart by
    `rollout.step_index`: the evidence of the step's own windows starts anew when it moves.
    """
    raise NotImplementedError(spec, rollout, windows, weight, final, objectives)
