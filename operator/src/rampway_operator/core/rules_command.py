"""What a person commands. It does not know the form of a command (`commands.py`)."""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.commands import Judged, Verb, judge
from rampway_operator.core.moves import Move
from rampway_operator.core.rules_start import start
from rampway_operator.core.spec import AnalysisStep
from rampway_operator.core.state import Command, EndReason, Phase
from rampway_operator.core.status_text import short
from rampway_operator.core.steps import advance, promote, retry_step, to_full
from rampway_operator.core.tick import Tick

__all__ = ["note_command", "obey"]


def note_command(tick: Tick) -> tuple[Tick, Judged | None]:
    """The tick with a new command noted in its state, and what becomes of that command.

    The note and the move it leads to are one write, so a command acts once however often it is read.
    """
    text = tick.observed.command
    last = tick.state.last_command
    if not text or (last is not None and last.id == short(text)):
        return tick, None
    verdict = judge(text, tick.state, tick.observed.spec_hash)
    if verdict.applied and verdict.request is not None:
        forbidden = tick.spec.paused and verdict.request.verb is not Verb.ABORT
        if forbidden:
            verdict = Judged(
                verdict.request, "Refused: spec.paused is true, which only abort overrides"
            )
    noted = replace(tick.state, last_command=Command(short(text), verdict.result))
    return replace(tick, state=noted), verdict


def obey(tick: Tick, verdict: Judged) -> Move | None:  # noqa: PLR0911 - one exit a verb
    """The move of a command that was just noted; a refused one is recorded as a decision, too."""
    request = verdict.request
    if request is None or not verdict.applied:
        return tick.moved(
            tick.state, "CommandRefused", f"{tick.observed.command}: {verdict.result}"
        )
    match request.verb:
        case Verb.ABORT:
            if tick.state.phase is Phase.ROLLING_BACK:
                return tick.moved(tick.state, "CommandApplied", "abort: already rolling back")
            return tick.roll_back(EndReason.ABORTED, "a person aborted the rollout")
        case Verb.RETRY:
            kept = tuple(item for item in tick.state.failed if item.hash != request.hash)
            return start(replace(tick, state=replace(tick.state, failed=kept)), "Retried")
        case Verb.PROMOTE_FULL:
            if tick.state.phase is Phase.BAKING or tick.rollout.paused_from is Phase.BAKING:
                return promote(tick, "Person", "a person promoted in full")
            return to_full(
                tick, "PromotedInFull", "a person passed over the remaining steps", "Person"
            )
        case Verb.PROMOTE:
            return _promote(tick)


def _promote(tick: Tick) -> Move:
    rollout, phase = tick.rollout, tick.state.phase
    below = rollout.paused_from if phase is Phase.PAUSED else phase
    if below is Phase.BAKING:
        return promote(tick, "Person", "a person promoted the candidate")
    if below in (Phase.PREFLIGHT, Phase.PROVISIONING, Phase.SHIFTING):
        return retry_step(tick, below, "Resumed", "a person let the rollout go on")
    if below is Phase.WARMING:
        pods = (*tick.candidates, *tick.baselines)
        latest = max((p.created_at for p in pods), default=tick.now)
        warmed = replace(rollout, warmed_until=latest, warm=True)
        return advance(
            replace(tick, state=replace(tick.state, rollout=warmed)),
            rollout.step_index,
            "Promoted",
            "a person passed over the warm-up",
        )
    approval = rollout.approval
    if isinstance(tick.step, AnalysisStep) and tick.may_approve:
        approval = "Person"
    return advance(
        tick,
        rollout.step_index + 1,
        "Promoted",
        f"a person passed over step {rollout.step_index + 1}",
        approval=approval,
    )
