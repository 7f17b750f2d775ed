"""Prints a report: a table for people, JSON for programs, and the short termination message for Kubernetes.

It does not know how anything was found.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from rampway_check_env.findings import Finding, Report

__all__ = ["MESSAGE_LIMIT", "as_json", "as_message", "as_table", "usage_message"]

MESSAGE_LIMIT = 4096
"""Bytes that the kubelet keeps of a termination message."""

_FORMAT_VERSION = 1
_HEADINGS = ("CHECK", "VERDICT", "FOUND", "REQUIRED")
_WIDEST = 70


def as_table(report: Report) -> str:
    """The findings in columns, each failure's remedy below it, and the result in the last line."""
    rows = [
        (f.check, f.verdict.value, _clip(f.found), _clip(f.required) or "-")
        for f in report.findings
    ]
    widths = [max(len(row[i]) for row in [_HEADINGS, *rows]) for i in range(len(_HEADINGS))]
    lines = [_row(_HEADINGS, widths)]
    for finding, row in zip(report.findings, rows):  # noqa: B905 - Python 3.8 has no strict=
        lines.append(_row(row, widths))
        if finding.fault:
            lines.append("    found:    %s" % finding.found)
            lines.append("    required: %s" % finding.required)
            lines.append("    remedy:   %s" % finding.remedy)
    counts = ", ".join("%d %s" % (n, word) for word, n in _counts(report.findings).items())
    result = report.fault.value if report.fault else "pass"
    return "\n".join(
        [
            *lines,
            "",
            "result: %s (exit code %d): %s in %.1f s"
            % (result, report.exit_code, counts, report.took_ms / 1000),
        ]
    )


def as_json(report: Report) -> str:
    """The whole report as one JSON object over several lines."""
    findings = [
        dict(_entry(f), verdict=f.verdict.value, **({"class": f.fault.value} if f.fault else {}))
        for f in report.findings
    ]
    whole = {
        "v": _FORMAT_VERSION,
        "class": _class(report),
        "exitCode": report.exit_code,
        "unchecked": list(report.unchecked),
        "findings": findings,
        "took_ms": report.took_ms,
    }
    return json.dumps(whole, indent=2)


def as_message(report: Report) -> str:
    """The termination message: one line of JSON of at most 4,096 bytes, worst failures first.

    Where all failures do not fit, texts are cut, then failures are left out from the end and counted in `more`.
    What room is left holds the verdict of every check, with as much of what was found as fits.
    """
    message: Dict[str, Any] = {
        "v": _FORMAT_VERSION,
        "class": _class(report),
        "failed": [_entry(f) for f in report.failures],
        "took_ms": report.took_ms,
    }
    if report.unchecked:
        message["unchecked"] = list(report.unchecked)
    text = _fit(message)
    for longest in (200, 80, 30, 0):
        checks = [[f.check, f.verdict.value, _clip(f.found, longest)] for f in report.findings]
        whole = _compact(dict(json.loads(text), checks=checks))
        if len(whole.encode()) <= MESSAGE_LIMIT:
            return whole
    return text


def usage_message(faults: Sequence[str]) -> str:
    """The termination message of requirements that cannot be understood."""
    failed = [
        {
            "check": "requirements",
            "found": fault,
            "required": "valid requirements",
            "remedy": "correct spec.preflight.requirements",
        }
        for fault in faults
    ]
    return _fit({"v": _FORMAT_VERSION, "class": "UsageError", "failed": failed, "took_ms": 0})


def _class(report: Report) -> str:
    return report.fault.value if report.fault else "Pass"


def _entry(finding: Finding) -> Dict[str, str]:
    return {
        "check": finding.check,
        "found": finding.found,
        "required": finding.required,
        "remedy": finding.remedy,
    }


def _fit(message: Dict[str, Any]) -> str:
    failed: List[Dict[str, str]] = message["failed"]
    for longest in (1000, 300, 120):
        cut = [{key: _clip(value, longest) for key, value in entry.items()} for entry in failed]
        text = _compact(dict(message, failed=cut))
        if len(text.encode()) <= MESSAGE_LIMIT:
            return text
    while len(text.encode()) > MESSAGE_LIMIT:
        cut.pop()
        text = _compact(dict(message, failed=cut, more=len(failed) - len(cut)))
    return text


def _compact(message: Dict[str, Any]) -> str:
    return json.dumps(message, separators=(",", ":"))


def _clip(text: str, longest: int = _WIDEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: max(0, longest - 3)] + "..." * (longest > 3)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths))  # noqa: B905 - Python 3.8, as above
    return "  ".join(padded).rstrip()


def _counts(findings: Sequence[Finding]) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for finding in findings:
        counts[finding.verdict.value] = counts.get(finding.verdict.value, 0) + 1
    return counts
