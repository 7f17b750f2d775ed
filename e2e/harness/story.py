"""Follows one InferenceDeployment through a rollout and tells what happens, as it happens.

It reads status only; what a rollout should do is for the caller to judge.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harness.kube import Kube

__all__ = ["Moment", "Story", "condition", "outcome"]

QUIET_SECONDS = 20.0
"""After so long without a line, what the rollout waits for is told."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The state of a rollout when it was seen to change."""

    at: float
    phase: str
    step: str
    weight: int | None
    note: str


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a condition of a status; empty when it has none of that type."""
    return next((c for c in status.get("conditions", ()) if c["type"] == kind), {})


def outcome(status: dict[str, Any]) -> tuple[str, str] | None:
    """Return (reason, message) of the ended rollout of the current generation; None while it runs."""
    ended = condition(status, "RolloutComplete")
    if ended.get("status") == "True":
        return str(ended["reason"]), str(ended["message"])
    return None


@dataclass(slots=True)
class Story:
    """Collects moments and decisions of one object; `tell` gets a line for each."""

    kube: Kube
    name: str
    tell: Callable[[str], None]
    moments: list[Moment] = field(default_factory=list)
    _decisions: set[tuple[str, str]] = field(default_factory=set)
    _verdicts: dict[str, str] = field(default_factory=dict)
    _waiting_for: str = ""
    _told_at: float = field(default_factory=time.monotonic)

    def skip_past(self) -> None:
        """Take all that happened so far as told."""
        self.moments.clear()
        for decision in self.kube.get("infd", self.name).get("status", {}).get("decisions", ()):
            self._decisions.add((decision["at"], decision["reason"]))

    def until(
        self, check: Callable[[dict[str, Any]], Any], what: str, timeout: float
    ) -> dict[str, Any]:
        """Follow until `check(object)` is true and return the object then; raises TimeoutError."""
        end = time.monotonic() + timeout
        while True:
            with self.kube.watch("infd", self.name) as seen:
                while not seen.ended:
                    left = end - time.monotonic()
                    now = seen.get(max(0.0, min(QUIET_SECONDS, left)))
                    if now is not None:
                        self._note(now.get("status", {}))
                    self._break_silence()
                    if now is not None and check(now):
                        return now
                    if left <= 0:
                        raise TimeoutError(f"{what}: not within {timeout:.0f} s")
            time.sleep(1)  # the API server ends a watch now and then: begin another

    def until_ended(self, generation: int, timeout: float) -> tuple[str, str]:
        """Follow until the rollout of that generation has ended and return its reason and message."""

        def ended(seen: dict[str, Any]) -> bool:
            status = seen.get("status", {})
            current = (
                condition(status, "RolloutComplete").get("observedGeneration", -1) >= generation
            )
            return current and outcome(status) is not None

        last = self.until(ended, f"the end of the rollout of {self.name}", timeout)
        found = outcome(last["status"])
        assert found is not None
        return found

    def _say(self, line: str) -> None:
        self._told_at = time.monotonic()
        self.tell(line)

    def _break_silence(self) -> None:
        if time.monotonic() - self._told_at >= QUIET_SECONDS:
            self._say(f"  waits for {self._waiting_for or 'the operator'}")

    def _note(self, status: dict[str, Any]) -> None:
        self._waiting_for = status.get("waitingFor", "")
        rollout = status.get("rollout") or {}
        weight = (rollout.get("weight") or {}).get("verified")
        step = (rollout.get("step") or {}).get("display", "")
        note = (rollout.get("weight") or {}).get("note", "")
        moment = Moment(time.time(), status.get("phase", ""), step, weight, note)
        last = self.moments[-1] if self.moments else None
        if last is None or (last.phase, last.step, last.weight) != (
            moment.phase,
            moment.step,
            moment.weight,
        ):
            self.moments.append(moment)
            shown = f"  weight {weight} %" if weight is not None else ""
            self._say(f"{moment.phase:<13} {step:<14}{shown}  {note}".rstrip())
        for decision in status.get("decisions", ()):
            key = (decision["at"], decision["reason"])
            if key not in self._decisions:
                self._decisions.add(key)
                self._say(f"  decided {decision['reason']}: {decision['message']}")
        for verdict in rollout.get("verdicts", ()):
            if self._verdicts.get(verdict["objective"]) != verdict["verdict"]:
                self._verdicts[verdict["objective"]] = verdict["verdict"]
                self._say(
                    f"  verdict {verdict['objective']}: {verdict['verdict']}: {verdict['message']}"
                )
