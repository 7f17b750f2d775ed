"""Rollouts in virtual time: the operator's core at work on a small cluster in memory.

`World` looks, decides, stores and acts as reconcile.py does, may die between any two writes, and holds
every write against the promises of architecture.md (`World.check`). It knows nothing of how decisions
are made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from world_cluster import START, Behaviour, Cluster

from rampway_operator.core import names
from rampway_operator.core.actions import SendSmoke, SendWarmup
from rampway_operator.core.capacity import surge, unavailable
from rampway_operator.core.decide import decide
from rampway_operator.core.observed import CheckState, WarmupProgress
from rampway_operator.core.parse import InvalidSpec
from rampway_operator.core.phases import is_legal
from rampway_operator.core.plan import plan
from rampway_operator.core.revision import plan_digest
from rampway_operator.core.state import Phase, State
from rampway_operator.core.status import invalid_status, state_from_status, status_from_state

__all__ = ["START", "Behaviour", "Crash", "World", "basic_spec", "world"]


class Crash(Exception):
    """The operator died here."""


@dataclass
class World(Cluster):
    """A cluster with our operator on it."""

    writes: int = 0
    crash_at: int | None = None
    crash_before: bool = True
    pristine: bool = True
    """No fault was injected into stable pods: then no capacity may be lost."""
    phases: list[Phase] = field(default_factory=list)
    was_full: bool = False
    """The service was whole once: from then on it may not lose capacity unless a fault is injected."""
    deployed: bool = False
    peak: int = 0
    skew: timedelta = timedelta(0)
    """How far the operator's clock is from the cluster's."""

    def advance(self, seconds: float) -> None:
        """Let time pass and the controllers act; what they did is held against the promises."""
        super().advance(seconds)
        self.check()

    @property
    def clock(self) -> datetime:
        """What the operator's clock shows."""
        return self.now + self.skew

    # --- the operator -------------------------------------------------------------------------

    def write(self) -> None:
        """Count a write; the operator may die before or after it."""
        self.writes += 1
        if self.crash_at is not None and self.writes == self.crash_at and self.crash_before:
            raise Crash

    def written(self) -> None:
        if self.crash_at is not None and self.writes == self.crash_at and not self.crash_before:
            raise Crash
        self.check()

    def tick(self) -> float:
        """One look of the operator, as reconcile.py does it; seconds until the next."""
        try:
            return self._tick()
        except Crash:
            self.crash_at = None
            # What lived in memory only is gone.
            self.smoked.clear()
            self.smoke_errors.clear()
            self.warmup, self.warmup_pods = WarmupProgress(), None
            return 0.0

    def _tick(self) -> float:
        try:
            spec = self.parsed
        except InvalidSpec as error:
            self._store(
                invalid_status(
                    error.faults, generation=self.generation, now=self.clock, previous=self.status
                )
            )
            return 60.0
        observed = self.observe()
        move = decide(spec, observed, now=self.clock)
        assert is_legal(observed.state.phase, move.state.phase), (
            observed.state.phase,
            move.state.phase,
        )
        status = status_from_state(
            spec,
            observed,
            move.state,
            now=self.clock,
            waiting_for=move.waiting_for,
            previous=self.status,
        )
        assert state_from_status(status) == move.state, "status must read back as the state"
        if move.transition and self._store(status):
            return 0.0
        for action in plan(spec, observed, now=self.clock):
            if not isinstance(action, SendSmoke | SendWarmup):
                self.write()
            self.act(spec, action)
            self.written()
        self._store(status)
        return move.requeue_after.total_seconds()

    def _store(self, status: dict[str, Any]) -> bool:
        if status == self.status:
            return False
        self.write()
        before = self.state
        self.status = json.loads(json.dumps(status))
        self._check_status(before, self.state)
        self.written()
        return True

    # --- promises -----------------------------------------------------------------------------

    def check(self) -> None:
        """The invariants of architecture.md that hold at every write, and whenever time passes."""
        try:
            spec, state = self.parsed, self.state
        except InvalidSpec:
            return
        limit = spec.replicas + surge(spec)
        asked = sum(s.manifest["spec"]["replicas"] for s in self.sets.values())
        self.peak = max(limit, self.peak if asked > limit else limit)
        assert asked <= self.peak, f"{asked} pods asked for, at most {self.peak} are allowed"
        alive = {
            s.manifest["metadata"]["labels"][names.LABEL_REVISION]
            for s in self.sets.values()
            if s.manifest["spec"]["replicas"]
        }
        assert len(alive) <= 3, "at most stable, candidate and one draining revision"
        for pod in self.live():
            inside = pod.labels.get(names.LABEL_ROTATION) == "true"
            rollout = state.rollout
            trial = (
                rollout is not None
                and rollout.candidate.hash == pod.hash
                and state.phase is not Phase.DRAINING
            )
            if inside and trial and pod.name in self.routed:
                assert (
                    self.check_state(pod) is None
                    or self.check_state(pod).state is CheckState.PASSED
                )
        floor = spec.replicas - unavailable(spec)
        if state.rollout is not None and state.rollout.hard:
            self.was_full = False  # errors are worse than too few pods: the weight goes at once
        elif self.deployed and len(self.serving()) >= floor:
            self.was_full = True
        if self.pristine and state.stable is not None and self.was_full:
            assert len(self.serving()) >= floor, f"{len(self.serving())} of {floor} pods serve"

    def _check_status(self, before: State, after: State) -> None:
        self.phases.append(after.phase)
        assert after.observed_generation >= before.observed_generation
        if before.stable != after.stable and before.stable is not None:
            assert after.phase is Phase.DRAINING, "only a promotion moves the stable pointer"
            assert after.rollout is not None
            assert after.rollout.approval, "promoted without approval"
            assert after.rollout.verified_weight == 100
        if before.phase is Phase.IDLE and after.phase in (Phase.PREFLIGHT, Phase.PROVISIONING):
            assert after.rollout is not None
            known = {f.hash for f in before.failed}
            told = after.decisions[-1].reason
            if after.rollout.candidate.hash in known and told != "Retried":
                failed = next(f for f in before.failed if f.hash == after.rollout.candidate.hash)
                assert failed.plan != plan_digest(self.parsed), "a failed hash was tried again"

    def mark_full(self) -> None:
        """From here on the service is whole: it may not lose capacity unless a fault is injected."""
        self.deployed = self.was_full = True

    # --- driving ------------------------------------------------------------------------------

    def run(self, seconds: float, until: Callable[[World], bool] | None = None) -> World:
        """Tick and let time pass until `until`, or until `seconds` are over."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            for _ in range(30):
                pause = self.tick()
                if pause > 0:
                    break
            else:
                raise AssertionError(f"no rest in phase {self.phase}: {self.state.decisions[-3:]}")
            if until is not None and until(self):
                return self
            self.advance(1.0 if self.moving else min(pause, 5.0))
        assert until is None, f"not reached in {seconds} s; {self.story()}"
        return self

    def until_phase(self, phase: Phase, seconds: float = 3600) -> World:
        return self.run(seconds, lambda w: w.phase is phase)

    def until_settled(self, seconds: float = 7200) -> World:
        """Idle, and nothing left to do."""
        return self.run(
            seconds,
            lambda w: (
                w.phase is Phase.IDLE
                and not w.moving
                and plan(w.parsed, w.observe(), now=w.clock) == ()
                and not decide(w.parsed, w.observe(), now=w.clock).transition
            ),
        )

    def deploy(self) -> World:
        """A first deployment that succeeded."""
        self.until_settled()
        assert self.state.stable is not None, self.story()
        self.mark_full()
        return self

    def story(self) -> str:
        lines = [f"{d.at:%H:%M:%S} {d.reason}: {d.message}" for d in self.state.decisions[-8:]]
        rollout = self.state.rollout
        waiting = self.status.get("waitingFor", "")
        return "\n".join([f"phase {self.phase}, waiting for {waiting}", *lines, str(rollout)[:400]])


def basic_spec(**changes: Any) -> dict[str, Any]:
    """A small valid spec; `changes` are top-level blocks."""
    spec: dict[str, Any] = {
        "replicas": 4,
        "minReadySeconds": 2,
        "engine": {"image": "v1"},
        "strategy": {"canary": {"bake": "60s", "scaleDownDelay": "5s"}},
        "analysis": {"interval": "15s"},
    }
    spec.update(changes)
    return spec


def world(seed: int = 0, **changes: Any) -> World:
    """A world with a basic spec."""
    return World(spec=basic_spec(**changes), seed=seed)
