"""An InferenceDeployment's status as text for people.

It computes nothing: every number shown is one that the operator stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["headline", "history", "status", "summary"]

Object = Mapping[str, Any]
COLOURS = {"Pass": "green", "Fail": "red", "Undecided": "yellow"}
GOOD_WHEN_FALSE = frozenset({"Reconciling", "Stalled"})


def summary(found: Object) -> dict[str, Any]:
    """What scripts want: identity and the whole status."""
    metadata = found["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "generation": metadata.get("generation"),
        "status": found.get("status") or {},
    }


def headline(found: Object) -> str:
    """Where it stands, in one line: what `watch` prints when it changes."""
    state = found.get("status") or {}
    parts = [str(state.get("phase", "not seen by the operator yet"))]
    rollout = state.get("rollout") or {}
    if rollout:
        weight = rollout.get("weight") or {}
        parts.append(f"candidate {(state.get('candidateRevision') or {}).get('hash', '?')}")
        parts.append(f"step {(rollout.get('step') or {}).get('display', '?')}")
        parts.append(f"weight {weight.get('verified', 0)} %")
        parts += [f"{v.get('objective')} {v.get('verdict')}" for v in rollout.get("verdicts") or []]
    elif stable := state.get("stableRevision"):
        parts.append(f"stable {stable.get('hash')}")
        parts.append(f"{state.get('readyReplicas', 0)}/{state.get('replicas', 0)} ready")
    if waiting := state.get("waitingFor"):
        parts.append(f"waiting for {waiting}")
    return "  ".join(parts)


def status(found: Object) -> RenderableType:
    """Everything of the present: revisions, step, verdicts, what is wrong, the last decisions."""
    metadata, state = found["metadata"], found.get("status") or {}
    title = Text(f"{metadata['namespace']}/{metadata['name']}  ", style="bold")
    title.append(str(state.get("phase", "not seen by the operator yet")))
    if reason := state.get("reason"):
        title.append(f" ({reason})")
    blocks: list[RenderableType] = [title]
    if waiting := state.get("waitingFor"):
        blocks.append(Text(f"waiting for {waiting}", style="yellow"))
    blocks.append(_revisions(found, state))
    verdicts = (state.get("rollout") or {}).get("verdicts") or []
    if verdicts:
        blocks.append(_verdicts(verdicts))
    blocks += _faults(state.get("conditions") or [])
    decisions = state.get("decisions") or []
    if decisions:
        blocks.append(_decisions(decisions[-5:]))
    return Group(*blocks)


def history(found: Object) -> RenderableType:
    """The ended rollouts and all decisions that are still stored."""
    state = found.get("status") or {}
    table = _table("revision", "hash", "outcome", "started", "ended", "image", "why")
    for entry in state.get("history") or []:
        keys = ("number", "hash", "outcome", "startedAt", "endedAt", "image", "message")
        table.add_row(*(str(entry.get(key, "")) for key in keys))
    ended = table if table.row_count else Text("no rollout has ended yet")
    return Group(ended, _decisions(state.get("decisions") or []))


def _revisions(found: Object, state: Object) -> Table:
    table = _table("arm", "revision", "hash", "pods ready", "weight", "image")
    rollout = state.get("rollout") or {}
    weight, pods = rollout.get("weight") or {}, rollout.get("pods") or {}
    verified = int(weight.get("verified", 0))
    if stable := state.get("stableRevision"):
        ready = f"{state.get('readyReplicas', 0)}/{state.get('replicas', 0)}"
        table.add_row("stable", *_identity(stable), ready, f"{100 - verified} %", _image(stable))
    if candidate := state.get("candidateRevision"):
        ready = f"{pods.get('candidateReady', 0)}/{pods.get('candidate', 0)}"
        note = f" ({weight['note']})" if weight.get("note") else ""
        table.add_row(
            "candidate", *_identity(candidate), ready, f"{verified} %{note}", _image(candidate)
        )
    if pods.get("baseline"):
        ready = f"{pods.get('baselineReady', 0)}/{pods['baseline']}"
        table.add_row("baseline", "", "", ready, "", "")
    if rollout:
        step, cache = rollout.get("step") or {}, rollout.get("cache") or {}
        rates = [cache.get(f"{arm}HitRate") for arm in ("candidate", "baseline")]
        shown = " vs ".join(str(rate) for rate in rates if rate is not None)
        table.caption = (
            f"step {step.get('display', '?')}, prefix cache {cache.get('state', '?')} {shown}"
        )
        table.caption_justify = "left"
    if (found.get("spec") or {}).get("paused"):
        table.title = "paused by spec.paused"
    return table


def _verdicts(verdicts: Iterable[Object]) -> Table:
    table = _table(
        "objective", "verdict", "candidate", "reference", "interval", "limit", "requests", "why"
    )
    for record in verdicts:
        verdict = str(record.get("verdict", ""))
        low, high = _short(record.get("low")), _short(record.get("high"))
        table.add_row(
            str(record.get("objective", "")),
            Text(verdict, style=COLOURS.get(verdict, "")),
            _short(record.get("candidateValue")),
            _short(record.get("referenceValue")),
            f"{low} .. {high}" if low or high else "",
            _short(record.get("margin")),
            f"{record.get('n', 0)} / {record.get('nReference', 0)}",
            str(record.get("message", "")),
        )
    return table


def _faults(conditions: Iterable[Object]) -> list[Text]:
    """The conditions that say that something is not well."""
    found = []
    for condition in conditions:
        bad = "True" if condition.get("type") in GOOD_WHEN_FALSE else "False"
        if condition.get("status") == bad and condition.get("type") not in {
            "Reconciling",
            "RolloutComplete",
        }:
            text = (
                f"{condition['type']}={bad} {condition.get('reason')}: {condition.get('message')}"
            )
            found.append(Text(text, style="red"))
    return found


def _decisions(decisions: Iterable[Object]) -> Table:
    table = _table("when", "revision", "decision", "because")
    for decision in decisions:
        keys = ("at", "revision", "reason", "message")
        table.add_row(*(str(decision.get(key, "")) for key in keys))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _identity(revision: Object) -> tuple[str, str]:
    return f"#{revision.get('number', '?')}", str(revision.get("hash", ""))


def _image(revision: Object) -> str:
    return str(revision.get("image", ""))


def _short(value: object) -> str:
    try:
        return f"{float(str(value)):.4g}" if value is not None else ""
    except ValueError:
        return str(value)
