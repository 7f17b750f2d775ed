"""What check_env left in a pod's termination message: who is to blame, in words, and as a report by node.

It does not know what a failure leads to (`checks.py`). The exit codes and the message are check_env's contract:
`docs/preflight.md`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from rampway_operator.core.observed import CheckState, InitCheck, Pod
from rampway_operator.core.status_text import instant, short

__all__ = ["CheckClass", "classify", "describe", "digest", "reports_by_node", "unchecked"]


class CheckClass(StrEnum):
    """Who is to blame for a failed check."""

    BAD_REVISION = "BadRevision"
    BAD_NODE = "BadNode"
    INFRASTRUCTURE = "Infrastructure"


_BY_EXIT_CODE: Final = {
    2: CheckClass.BAD_REVISION,  # usage: this revision's requirements cannot be understood
    10: CheckClass.BAD_REVISION,
    11: CheckClass.BAD_NODE,
    12: CheckClass.INFRASTRUCTURE,
}
_MISSING: Final = ("not found", "no such file")
"""How container runtimes say that a program is not in the image; in small letters."""
_MOST_NODES: Final = 150
"""Reports of at most about 5 kB each have to fit into a ConfigMap of 1 MiB."""


def classify(exit_code: int | None, message: str = "") -> CheckClass:
    """Who is to blame; whatever is not in the contract (killed, no permission) is nobody's proven fault.

    An image without python3 is the exception: it has none on any node.
    """
    if _lacks_python(exit_code, message):
        return CheckClass.BAD_REVISION
    return _BY_EXIT_CODE.get(exit_code if exit_code is not None else -1, CheckClass.INFRASTRUCTURE)


def describe(pod: Pod, check: InitCheck) -> str:
    """One sentence: pod, node, and the first finding with its values and remedy."""
    where = f"pod {pod.name} on node {pod.node or '?'}"
    if _lacks_python(check.exit_code, check.message):
        remedy = "set preflight.image to an image that has it, or preflight.mode to Off"
        return short(f"{where}: the engine's image has no python3 to run check_env; {remedy}")
    finding = _first_finding(check.message)
    if finding is None:
        return short(f"{where}: exit code {check.exit_code}: {check.message or 'no message'}")
    parts = [
        f"{where}: {finding.get('check', 'check')}",
        f"found {finding.get('found')}",
        f"need {finding.get('required')}",
    ]
    if finding.get("remedy"):
        parts.append(str(finding["remedy"]))
    return short("; ".join(parts))


def unchecked(pods: Iterable[Pod]) -> tuple[str, ...]:
    """Checks of the engine's image that could not be made, because they ran in another one; sorted."""
    names: set[str] = set()
    for pod in pods:
        report = _parsed(pod.check.message) if pod.check is not None else None
        listed = report.get("unchecked") if report is not None else None
        names.update(str(name) for name in listed or () if isinstance(listed, list))
    return tuple(sorted(names))


def reports_by_node(pods: Iterable[Pod]) -> dict[str, str]:
    """One JSON text for each node where a check has ended with a message; of several pods the last to end.

    `{pod, at, exitCode, report}`, where the report is check_env's message, or its text when it is no JSON.
    Of more than 150 nodes those that failed come first.
    """
    ended: dict[str, tuple[str, bool, str]] = {}
    for pod in pods:
        check = pod.check
        if check is None or check.state not in (CheckState.PASSED, CheckState.FAILED):
            continue
        if not pod.node or not check.message:
            continue
        at = instant(check.finished_at) if check.finished_at is not None else ""
        entry = {
            "pod": pod.name,
            "at": at,
            "exitCode": check.exit_code,
            "report": _parsed(check.message) or short(check.message, 2000),
        }
        text = json.dumps(entry, separators=(",", ":"), sort_keys=True)
        passed = check.state is CheckState.PASSED
        ended[pod.node] = max(ended.get(pod.node, ("", False, "")), (at, passed, text))
    kept = sorted((passed, node) for node, (_, passed, _) in ended.items())[:_MOST_NODES]
    return {node: ended[node][2] for _, node in sorted(kept, key=lambda item: item[1])}


def digest(reports: Mapping[str, str]) -> str:
    """A short fingerprint by which reports that are written already are known again."""
    return hashlib.sha256(json.dumps(reports, sort_keys=True).encode()).hexdigest()[:16]


def _lacks_python(exit_code: int | None, message: str) -> bool:
    told = message.lower()
    return (
        exit_code not in _BY_EXIT_CODE
        and "python3" in told
        and any(words in told for words in _MISSING)
    )


def _first_finding(message: str) -> Mapping[str, Any] | None:
    report = _parsed(message)
    failed = report.get("failed") if report is not None else None
    first = failed[0] if isinstance(failed, list) and failed else None
    return first if isinstance(first, dict) else None


def _parsed(message: str) -> Mapping[str, Any] | None:
    try:
        report = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None
