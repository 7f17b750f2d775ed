"""Reads `.status` back into State: whatever is malformed counts as absent, nothing raises.

It does not know the cluster; what status lost is rebuilt from the children by `rebuild.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, TypeVar

from rampway_operator.core.state import (
    Command,
    Decision,
    EndReason,
    Evidence,
    FailedRevision,
    HistoryEntry,
    Phase,
    Revision,
    Rollout,
    State,
    Sums,
    Verdict,
    VerdictRecord,
)
from rampway_operator.core.status_text import camel, parse_instant, parse_number, parse_numbers

__all__ = ["MAX_DECISIONS", "MAX_FAILED", "MAX_HISTORY", "state_from_status"]

MAX_DECISIONS, MAX_HISTORY, MAX_FAILED = 20, 20, 5

_E = TypeVar("_E", bound=StrEnum)


def state_from_status(status: Any) -> State:
    """What a status remembers. A rollout that cannot be read whole is no rollout: it is then rebuilt."""
    raw = _mapping(status)
    rollout = _rollout(raw)
    phase = _enum(Phase, raw.get("phase")) or Phase.IDLE
    if (rollout is None) != (phase is Phase.IDLE):
        # Half of a rollout is worse than none: without its numbers nothing may advance.
        rollout, phase = None, Phase.IDLE
    command = _mapping(raw.get("lastCommand"))
    return State(
        phase=phase,
        observed_generation=_int(raw.get("observedGeneration"), -1),
        stable=_revision(raw.get("stableRevision")),
        rollout=rollout,
        last_number=_int(raw.get("lastNumber"), 0, least=0),
        route_made=raw.get("httpRoute") is True,
        failed=_items(raw.get("failedRevisions"), _failed)[-MAX_FAILED:],
        last_command=(
            Command(_text(command["id"]), _text(command.get("result")))
            if isinstance(command.get("id"), str)
            else None
        ),
        decisions=_items(raw.get("decisions"), _decision)[-MAX_DECISIONS:],
        history=_items(raw.get("history"), _history)[-MAX_HISTORY:],
    )


def _rollout(raw: Mapping[str, Any]) -> Rollout | None:
    body, candidate = _mapping(raw.get("rollout")), _revision(raw.get("candidateRevision"))
    started, phase_started = (
        parse_instant(body.get("startedAt")),
        parse_instant(body.get("phaseStartedAt")),
    )
    if candidate is None or started is None or phase_started is None:
        return None
    step, weight = _mapping(body.get("step")), _mapping(body.get("weight"))
    preflight, paused = _mapping(body.get("preflight")), _mapping(body.get("paused"))
    cache, end = _mapping(body.get("cache")), _mapping(body.get("end"))
    return Rollout(
        candidate=candidate,
        attempt=_int(_mapping(raw.get("candidateRevision")).get("attempt"), 1, least=1),
        started_at=started,
        phase_started_at=phase_started,
        step_index=_int(step.get("index"), 0, least=0),
        step_started_at=parse_instant(step.get("startedAt")),
        desired_weight=_int(weight.get("desired"), 0, least=0, most=100),
        verified_weight=_int(weight.get("verified"), 0, least=0, most=100),
        weight_note=_text(weight.get("note")),
        evidence=_items(body.get("evidence"), _evidence),
        verdicts=_items(body.get("verdicts"), _verdict),
        paused_from=_enum(Phase, paused.get("from")),
        paused_reason=_text(paused.get("reason")),
        outage_since=parse_instant(body.get("outageSince")),
        infrastructure_failures=_int(preflight.get("infrastructureFailures"), 0, least=0),
        avoided_nodes=_texts(preflight.get("avoidedNodes")),
        handled_pods=_texts(preflight.get("handledPods")),
        warm=cache.get("warm") is True,
        end_reason=_enum(EndReason, end.get("reason")),
        end_message=_text(end.get("message")),
        successor_pending=end.get("successorPending") is True,
        plan=_text(body.get("plan")),
        approval=_text(body.get("approval")),
        hard=end.get("hard") is True,
        weight_losses=_int(body.get("weightLosses"), 0, least=0),
        stable_down_since=parse_instant(body.get("stableDownSince")),
        warmed_until=parse_instant(cache.get("warmedUntil")),
        strategy=_text(body.get("strategy")) or "canary",
        recorded=tuple(
            numbers
            for text in _texts(body.get("recorded"))
            if (numbers := parse_numbers(text)) is not None
        ),
    )


def _revision(value: Any) -> Revision | None:
    raw = _mapping(value)
    name = raw.get("hash")
    if not isinstance(name, str) or not name:
        return None
    return Revision(name, _int(raw.get("number"), 0, least=0), _text(raw.get("image")))


def _failed(raw: Mapping[str, Any]) -> FailedRevision | None:
    reason, name = _enum(EndReason, raw.get("reason")), raw.get("hash")
    if reason is None or not isinstance(name, str):
        return None
    return FailedRevision(name, reason, _int(raw.get("generation"), 0), _text(raw.get("plan")))


def _decision(raw: Mapping[str, Any]) -> Decision | None:
    at = parse_instant(raw.get("at"))
    if at is None:
        return None
    return Decision(
        at, _text(raw.get("reason")), _text(raw.get("message")), _text(raw.get("revision"))
    )


def _history(raw: Mapping[str, Any]) -> HistoryEntry | None:
    outcome = _enum(EndReason, raw.get("outcome"))
    started, ended = parse_instant(raw.get("startedAt")), parse_instant(raw.get("endedAt"))
    if outcome is None or started is None or ended is None:
        return None
    return HistoryEntry(
        number=_int(raw.get("number"), 0, least=0),
        hash=_text(raw.get("hash")),
        image=_text(raw.get("image")),
        outcome=outcome,
        message=_text(raw.get("message")),
        started_at=started,
        ended_at=ended,
    )


def _evidence(raw: Mapping[str, Any]) -> Evidence | None:
    values: dict[str, Any] = {}
    for field in fields(Evidence):
        stored = raw.get(camel(field.name))
        if stored is None:
            if field.default is MISSING:
                return None
            continue
        value = _decode(stored, str(field.type))
        if value is None:
            return None
        values[field.name] = value
    return Evidence(**values)


def _decode(stored: object, kind: str) -> Any:  # noqa: PLR0911 - one exit a type
    """The value of a field of Evidence by its annotation; None when `stored` does not fit it."""
    if kind == "Sums":
        found = parse_numbers(stored)
        if found is None or len(found) != len(fields(Sums)) or not found[0].is_integer():
            return None
        return Sums(int(found[0]), *found[1:])
    if kind.startswith("tuple[float"):
        return parse_numbers(stored)
    if kind.startswith("float"):
        return parse_number(stored)
    if kind == "bool":
        return stored if isinstance(stored, bool) else None
    if kind == "bool":
        return stored if isinstance(stored, bool) else None
    if kind.startswith("int"):
        return stored if isinstance(stored, int) and not isinstance(stored, bool) else None
    return stored if isinstance(stored, str) else None


def _verdict(raw: Mapping[str, Any]) -> VerdictRecord | None:
    verdict, margin = _enum(Verdict, raw.get("verdict")), parse_number(raw.get("margin"))
    if verdict is None or margin is None or not isinstance(raw.get("objective"), str):
        return None
    needed = raw.get("needed")
    return VerdictRecord(
        objective=raw["objective"],
        verdict=verdict,
        n=_int(raw.get("n"), 0, least=0),
        n_reference=_int(raw.get("nReference"), 0, least=0),
        windows=_int(raw.get("windows"), 0, least=0),
        estimate=parse_number(raw.get("estimate")),
        low=parse_number(raw.get("low")),
        high=parse_number(raw.get("high")),
        margin=margin,
        alpha_spent=parse_number(raw.get("alphaSpent")) or 0.0,
        candidate_value=parse_number(raw.get("candidateValue")),
        reference_value=parse_number(raw.get("referenceValue")),
        needed=_int(needed, 0) if isinstance(needed, int) else None,
        message=_text(raw.get("message")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any, read: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        return ()
    found = (read(item) for item in value if isinstance(item, Mapping))
    return tuple(item for item in found if item is not None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _int(value: Any, default: int, *, least: int | None = None, most: int | None = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    if least is not None and value < least:
        return default
    return default if most is not None and value > most else value


def _enum(kind: type[_E], value: Any) -> _E | None:
    try:
        return kind(value)
    except ValueError:
        return None
