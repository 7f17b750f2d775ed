"""One-shot commands of people: `<verb>/<candidateHash>/<stepIndex>#<nonce>` in an annotation.

It knows which command may act on which state; it does not know how the act is carried out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rampway_operator.core.state import Phase, State

__all__ = ["Judged", "Request", "Verb", "judge", "parse_command"]

_FORM: Final = re.compile(r"([a-z][a-z-]{0,20})/([a-f0-9]{10})/([0-9]{1,3})#([A-Za-z0-9._-]{1,64})")


UNSKIPPABLE: Final = frozenset({Phase.PREFLIGHT, Phase.PROVISIONING, Phase.SHIFTING})
"""Phases that wait for the cluster alone."""


class Verb(StrEnum):
    """What a person can ask for."""

    PROMOTE = "promote"
    PROMOTE_FULL = "promote-full"
    ABORT = "abort"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Request:
    """A well-formed command."""

    verb: Verb
    hash: str
    step_index: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What becomes of a command: `result` is Applied, or `Stale: why`, or `Refused: why`."""

    request: Request | None
    result: str

    @property
    def applied(self) -> bool:
        """Whether it is to be acted on."""
        return self.result == "Applied"


def parse_command(text: str) -> Request | None:
    """The command that `text` writes; None when it has another form or verb."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in set(Verb):
        return None
    return Request(Verb(match[1]), match[2], int(match[3]))


def judge(text: str, state: State, spec_hash: str) -> Judged:  # noqa: PLR0911 - one exit a rule
    """Whether the command in `text` acts on `state`.

    promote and promote-full must name the step that the person saw. abort and retry need not: a rollout
    that moved on by a step since is still the one to stop, and abort outranks everything.
    """
    request = parse_command(text)
    if request is None:
        return Judged(
            None,
            "Refused: need <promote|promote-full|abort|retry>/<candidateHash>/<stepIndex>#<nonce>",
        )
    if request.verb is Verb.RETRY:
        return Judged(request, _retry(request, state, spec_hash))
    rollout = state.rollout
    if rollout is None or state.phase is Phase.DRAINING:
        return Judged(request, "Refused: no rollout is under way; to go back, edit the spec")
    if request.hash != rollout.candidate.hash:
        return Judged(request, f"Stale: the candidate is {rollout.candidate.hash}")
    if request.verb is Verb.ABORT:
        return Judged(request, "Applied")
    if request.step_index != rollout.step_index:
        return Judged(request, f"Stale: the rollout is at step {rollout.step_index}")
    return Judged(request, _promote(request.verb, state))


def _retry(request: Request, state: State, spec_hash: str) -> str:
    if request.hash != spec_hash:
        return f"Stale: the spec now is revision {spec_hash}"
    if state.phase is not Phase.IDLE:
        return f"Refused: a rollout is in phase {state.phase.value}, retry when it has ended"
    if all(item.hash != request.hash for item in state.failed):
        return "Refused: this revision did not fail, there is nothing to try again"
    return "Applied"


def _promote(verb: Verb, state: State) -> str:
    if state.phase is Phase.ROLLING_BACK:
        return "Refused: the rollout is being rolled back"
    if verb is Verb.PROMOTE_FULL and not _tried(state):
        return "Refused: no command passes over check_env and the smoke request"
    # In a pause promote only goes back to the phase that was left; it passes over no check.
    if verb is Verb.PROMOTE and state.phase in UNSKIPPABLE:
        return f"Refused: nothing waits for a person in phase {state.phase.value}"
    return "Applied"


def _tried(state: State) -> bool:
    """Whether the candidate has served, or is past the phases that prove that it can."""
    rollout = state.rollout
    assert rollout is not None, "asked only of a rollout"
    if rollout.verified_weight > 0 or rollout.warm:
        return True
    phase = rollout.paused_from if state.phase is Phase.PAUSED else state.phase
    return phase not in (Phase.PREFLIGHT, Phase.PROVISIONING)
