"""One tick's facts, and the three ways to answer them: stay, enter a phase, roll back.

It does not know when any of them is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from rampway_operator.core.capacity import expressed
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Arm, Observed, Pod, Pool, WarmupProgress
from rampway_operator.core.phases import is_legal
from rampway_operator.core.rotation import Rotation, choose
from rampway_operator.core.routed import keep_routed, weights
from rampway_operator.core.spec import AnalysisStep, Spec, Step, WarmupStep
from rampway_operator.core.state import Decision, EndReason, Phase, Rollout, State
from rampway_operator.core.status_read import MAX_DECISIONS
from rampway_operator.core.status_text import short
from rampway_operator.core.view import Aim, Arms, aim, arms, is_available

__all__ = ["IDLE_RESYNC", "ROLLOUT_RESYNC", "SETTLED_RESYNC", "SOON", "Tick", "look"]

SETTLED_RESYNC: Final = timedelta(seconds=300)
"""Of an object whose every change is an event: pods, ReplicaSets, Services and the object are watched."""
IDLE_RESYNC: Final = timedelta(seconds=60)
ROLLOUT_RESYNC: Final = timedelta(seconds=5)
SOON: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Tick:
    """What every rule looks at. `state` begins as the stored one; a command may have been noted in it."""

    spec: Spec
    observed: Observed
    state: State
    now: datetime
    arms: Arms
    aim: Aim

    @property
    def rollout(self) -> Rollout:
        """The rollout under way; only asked in phases that have one."""
        assert self.state.rollout is not None, f"phase {self.state.phase} without a rollout"
        return self.state.rollout

    @property
    def step(self) -> Step | None:
        """The step that is current or comes next; None past the last one."""
        steps, index = self.spec.canary.steps, self.rollout.step_index
        return steps[index] if index < len(steps) else None

    @property
    def candidates(self) -> list[Pod]:
        """Candidate pods that may take traffic."""
        return [p for p in self.arms.candidate if self._may_serve(p)]

    @property
    def baselines(self) -> list[Pod]:
        """Baseline pods that may take traffic."""
        return [p for p in self.arms.baseline if self._may_serve(p)]

    @property
    def unproven(self) -> int:
        """Candidate pods that are ready and only have to answer their real token.

        A restarted operator has forgotten who did: such a pod is asked again, it is not lost.
        """
        return sum(
            p.ready and p.uid not in self.observed.smoked and not self._may_serve(p)
            for p in self.arms.candidate
        )

    def _may_serve(self, pod: Pod) -> bool:
        return is_available(pod, self.spec, self.observed, self.now)

    @property
    def cold(self) -> list[Pod]:
        """Pods that may take traffic and had no warm-up though prompts are configured."""
        if self.spec.warmup.prompt_config_map is None:
            return []
        until = self.rollout.warmed_until
        pods = (*self.candidates, *self.baselines)
        return [p for p in pods if until is None or p.created_at > until]

    @property
    def cold_ips(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """IPs of the cold pods of the candidate and of the baseline: what a warm-up is for."""
        cold = [(p.pool, p.ip) for p in self.cold if p.ip]
        main, copies = (
            tuple(sorted(ip for pool, ip in cold if pool is wanted))
            for wanted in (Pool.MAIN, Pool.BASELINE)
        )
        return main, copies

    @property
    def warmup(self) -> WarmupProgress:
        """The progress for the pods that are cold now; that of other pods says nothing about them."""
        progress = self.observed.warmup
        if progress.pods == self.cold_ips:
            return progress
        return WarmupProgress(prompts=progress.prompts, prompts_error=progress.prompts_error)

    @property
    def in_phase(self) -> timedelta:
        """For how long the phase has lasted; never negative, whatever the clock does."""
        return max(timedelta(0), self.now - self.rollout.phase_started_at)

    @property
    def in_step(self) -> timedelta:
        """For how long the step has lasted."""
        return max(timedelta(0), self.now - (self.rollout.step_started_at or self.now))

    @property
    def is_final_analysis(self) -> bool:
        """Whether no analysis step comes after the current step."""
        later = self.spec.canary.steps[self.rollout.step_index + 1 :]
        return not any(isinstance(step, AnalysisStep) for step in later)

    @property
    def may_approve(self) -> bool:
        """Whether passing this step approves a promotion: the last analysis, and one with real traffic."""
        return self.is_final_analysis and self.rollout.verified_weight > 0

    def wish(self) -> Rotation:
        """The pods that shall be in rotation, whatever still gets traffic."""
        return choose(self.spec, self.observed, self.now)

    def rotation(self) -> Rotation:
        """The pods wanted in rotation now: behind a gateway, weight goes before labels."""
        if self.spec.traffic.gateway is None:
            return self.wish()
        return keep_routed(self.wish(), self.spec, self.observed, self.now)

    def routed_weight(self) -> int:
        """The candidate's share in percent: of the live route, or of the pods that get traffic now."""
        if self.spec.traffic.gateway is not None:
            return weights(self.observed).get(Arm.CANDIDATE, 0)
        names = {p.name for p in self.arms.candidate}
        return expressed(len(names & self.observed.routed), len(self.observed.routed))

    def stay(self, waiting: str, after: timedelta = ROLLOUT_RESYNC, **changes: Any) -> Move:
        """Nothing changes of what is wanted; `changes` of the rollout are remembered with the next write."""
        state = self._seen(self.state)
        if state.rollout is not None and changes:
            state = replace(state, rollout=replace(state.rollout, **changes))
        return Move(state, transition=False, requeue_after=after, waiting_for=waiting)

    def enter(self, phase: Phase, reason: str, message: str, **changes: Any) -> Move:
        """The rollout goes on in `phase`, with one recorded decision; `changes` are of the rollout."""
        assert is_legal(self.state.phase, phase), (
            f"{self.state.phase} -> {phase} is not in the table"
        )
        times: dict[str, Any] = {"phase_started_at": self.now}
        moved = changes.get("step_index", self.rollout.step_index) != self.rollout.step_index
        if (
            moved
            or phase in (Phase.ANALYZING, Phase.PAUSED)
            or self.rollout.step_started_at is None
        ):
            times["step_started_at"] = self.now
        if phase is not Phase.PAUSED:
            times |= {"paused_from": None, "paused_reason": ""}
        rollout = replace(self.rollout, **(times | changes))
        return self.moved(replace(self.state, phase=phase, rollout=rollout), reason, message)

    def roll_back(
        self, reason: EndReason, message: str, *, hard: bool = False, successor: bool = False
    ) -> Move:
        """The outcome is decided: the candidate winds down.

        `hard` (no ready endpoint, or errors) takes its traffic before all else. Whatever else failed, the
        candidate's pods that serve keep serving until stable has taken over: capacity is not the price.
        """
        return self.enter(
            Phase.ROLLING_BACK,
            reason.value,
            message,
            desired_weight=0,
            weight_note="",
            end_reason=reason,
            end_message=short(message),
            hard=hard,
            successor_pending=successor,
        )

    def pause(self, reason: str, message: str, back_to: Phase | None, **changes: Any) -> Move:
        """The rollout waits for a person, or for what `reason` says; `back_to` is where it goes on."""
        return self.enter(
            Phase.PAUSED, reason, message, paused_from=back_to, paused_reason=reason, **changes
        )

    def moved(self, state: State, reason: str, message: str) -> Move:
        """A move to `state`, written before anything is done about it."""
        rollout = state.rollout or self.state.rollout
        revision = rollout.candidate.hash if rollout is not None else self.observed.spec_hash
        decision = Decision(self.now, reason, short(message), revision)
        decisions = (*state.decisions, decision)[-MAX_DECISIONS:]
        return Move(
            self._seen(replace(state, decisions=decisions)),
            transition=True,
            requeue_after=timedelta(0),
            waiting_for="",
        )

    def _seen(self, state: State) -> State:
        generation = max(state.observed_generation, self.observed.generation)
        made = self.spec.traffic.gateway is not None or self.observed.route is not None
        return replace(state, observed_generation=generation, route_made=made)

    def skips(self, step: Step) -> bool:
        """Whether a step has nothing to do: a warm-up without prompts, or with every pod warm."""
        return isinstance(step, WarmupStep) and not self.cold


def look(spec: Spec, observed: Observed, state: State, now: datetime) -> Tick:
    """The facts of one tick."""
    return Tick(spec, observed, state, now, arms(observed), aim(spec, state))
