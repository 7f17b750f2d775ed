"""The phase Paused, and the hold that `spec.paused` puts on any phase. It does not know why one paused."""

from __future__ import annotations

from dataclasses import replace

from rampway_operator.core.durations import format_duration
from rampway_operator.core.moves import Move
from rampway_operator.core.rules_traffic import fail, judge_windows
from rampway_operator.core.spec import AnalysisMode, OnFailure, PauseStep
from rampway_operator.core.state import Phase, Verdict
from rampway_operator.core.steps import advance, retry_step
from rampway_operator.core.tick import ROLLOUT_RESYNC, Tick

__all__ = ["on_paused", "on_spec_paused"]


def on_spec_paused(tick: Tick) -> Move | None:
    """`spec.paused` freezes the step that runs; what paused for another reason stays so."""
    if not tick.spec.paused or tick.state.phase is Phase.PAUSED:
        return None
    return tick.pause("SpecPaused", "spec.paused is true", tick.state.phase)


def on_paused(tick: Tick) -> Move:  # noqa: PLR0911 - one exit a reason to wait
    """Waits; a candidate with traffic is still watched, and a failure still ends the rollout."""
    rollout, step = tick.rollout, tick.step
    watched = _watch(tick)
    if watched.transition:
        return watched
    seen = replace(tick, state=watched.state)
    if rollout.paused_reason == "SpecPaused":
        if tick.spec.paused:
            return seen.stay("spec.paused to be false")
        back_to = rollout.paused_from or Phase.PREFLIGHT
        if back_to is Phase.ANALYZING or back_to is Phase.WARMING or back_to is Phase.BAKING:
            return seen.enter(back_to, "Resumed", "spec.paused is false")
        return retry_step(seen, back_to, "Resumed", "spec.paused is false")
    if rollout.paused_reason == "PauseStep" and isinstance(step, PauseStep):
        if step.duration is None:
            return seen.stay("a promote command")
        left = step.duration - tick.in_step
        if left.total_seconds() > 0 or tick.spec.paused:
            return seen.stay(f"the pause to end in {format_duration(left)}")
        return advance(seen, rollout.step_index + 1, "PauseOver", format_duration(step.duration))
    return seen.stay(f"a promote or abort command: {_last_message(tick)}")


def _watch(tick: Tick) -> Move:
    """Folds windows while paused under traffic; the only verdict that acts here is Fail."""
    rollout, analysis = tick.rollout, tick.spec.analysis
    if not tick.observed.windows or rollout.verified_weight == 0:
        return tick.stay("", after=ROLLOUT_RESYNC)
    seen, found = judge_windows(tick, final=False)
    enforced = analysis.mode is AnalysisMode.ENFORCE and analysis.on_failure is OnFailure.ABORT
    # Who lets a failed candidate stand (onFailure Pause, Preview) is not overruled by waiting longer.
    if found.outcome is Verdict.FAIL and enforced and rollout.paused_reason != "AnalysisFailed":
        return fail(seen, found, rollout.paused_from or Phase.ANALYZING)
    return seen.stay("", after=ROLLOUT_RESYNC)


def _last_message(tick: Tick) -> str:
    return tick.state.decisions[-1].message if tick.state.decisions else tick.rollout.paused_reason
