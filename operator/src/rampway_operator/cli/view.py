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
LAST_DECISIONS = 5


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
    if (found.get("spec") or {}).get("paused"):
        blocks.append(Text("paused by spec.paused", style="yellow"))
    if waiting := state.get("waitingFor"):
        blocks.append(Text(f"waiting for {waiting}", style="yellow"))
    blocks.append(_revisions(state))
    blocks += _progress(state.get("rollout") or {})
    blocks += _faults(state.get("conditions") or [])
    blocks += _decisions((state.get("decisions") or [])[-LAST_DECISIONS:])
    return Group(*blocks)


def history(found: Object) -> RenderableType:
    """The ended rollouts and all decisions that are still stored."""
    state = found.get("status") or {}
    blocks: list[RenderableType] = [Text("ended rollouts", style="bold")]
    for entry in state.get("history") or []:
        span = f"{_time(entry.get('startedAt'))} to {_time(entry.get('endedAt'))}"
        text = Text(f"  #{entry.get('number')} {entry.get('hash')} {span}  ")
        outcome = str(entry.get("outcome", ""))
        text.append(outcome, style="green" if outcome == "Promoted" else "red")
        text.append(f"  {entry.get('image', '')}\n     {entry.get('message', '')}")
        blocks.append(text)
    if len(blocks) == 1:
        blocks.append(Text("  none yet"))
    return Group(*blocks, *_decisions(state.get("decisions") or []))


def _revisions(state: Object) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("arm", "revision", "ready", "weight", "image"):
        table.add_column(column, overflow="fold", no_wrap=column != "image")
    rollout = state.get("rollout") or {}
    weight, pods = rollout.get("weight") or {}, rollout.get("pods") or {}
    verified = int(weight.get("verified", 0))
    if stable := state.get("stableRevision"):
        ready = f"{state.get('readyReplicas', 0)}/{state.get('replicas', 0)}"
        table.add_row("stable", _identity(stable), ready, f"{100 - verified} %", _image(stable))
    if candidate := state.get("candidateRevision"):
        ready = f"{pods.get('candidateReady', 0)}/{pods.get('candidate', 0)}"
        table.add_row("candidate", _identity(candidate), ready, f"{verified} %", _image(candidate))
    if pods.get("baseline"):
        table.add_row("baseline", "", f"{pods.get('baselineReady', 0)}/{pods['baseline']}", "", "")
    return table


def _progress(rollout: Object) -> list[RenderableType]:
    """Step, cache and one line a verdict; its message has all the numbers."""
    if not rollout:
        return []
    step, cache = rollout.get("step") or {}, rollout.get("cache") or {}
    rates = [cache.get(f"{arm}HitRate") for arm in ("candidate", "baseline")]
    shown = ", baseline ".join(str(rate) for rate in rates if rate is not None)
    warm = f" (hit rate {shown})" if shown else ""
    line = f"step {step.get('display', '?')}, prefix cache {cache.get('state', '?')}{warm}"
    if note := (rollout.get("weight") or {}).get("note"):
        line += f", {note}"
    blocks: list[RenderableType] = [Text(line)]
    for record in rollout.get("verdicts") or []:
        verdict = str(record.get("verdict", ""))
        text = Text(f"  {verdict:<9} ", style=COLOURS.get(verdict, ""))
        text.append(f"{record.get('objective')}: {record.get('message', '')}", style="default")
        blocks.append(text)
    return blocks


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


def _decisions(decisions: Iterable[Object]) -> list[RenderableType]:
    blocks: list[RenderableType] = []
    for decision in decisions:
        text = Text(f"  {_time(decision.get('at'))} {decision.get('revision', '')} ")
        text.append(str(decision.get("reason", "")), style="bold")
        text.append(f": {decision.get('message', '')}")
        blocks.append(text)
    return [Text("decisions", style="bold"), *blocks] if blocks else []


def _time(value: object) -> str:
    """To the second; fractions only matter to machines."""
    return f"{str(value)[:19]}Z"


def _identity(revision: Object) -> str:
    return f"#{revision.get('number', '?')} {revision.get('hash', '')}"


def _image(revision: Object) -> str:
    """Digests to their first characters: the hash beside it says the rest."""
    name, _, digest = str(revision.get("image", "")).partition("@sha256:")
    return f"{name}@sha256:{digest[:12]}" if digest else name
