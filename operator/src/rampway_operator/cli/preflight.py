"""The environment checks of a revision as a matrix: a row a node, a column a check.

It judges nothing: it shows the reports that check_env left and the operator kept, as `docs/preflight.md` has them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["NodeReport", "matrix", "read_reports", "revision_of"]

Object = Mapping[str, Any]
NodeReport = tuple[str, dict[str, Any]]
"""A node, and what the last check on it left: pod, at, exitCode, report."""

CELLS = {"pass": ("pass", "green"), "fail": ("FAIL", "bold red"), "error": ("ERROR", "bold red"), "skip": ("-", "dim")}  # fmt: skip


def revision_of(found: Object, wanted: str | None) -> str:
    """The revision to show: `wanted`, or the candidate, or the last one that failed, or the stable one.

    Empty when there is none of these.
    """
    status = found.get("status") or {}
    history = status.get("history") or []
    last = history[-1] if history else {}
    failed = last.get("hash", "") if last.get("outcome") != "Promoted" else ""
    candidate = (status.get("candidateRevision") or {}).get("hash", "")
    stable = (status.get("stableRevision") or {}).get("hash", "")
    return str(wanted or candidate or failed or stable)


def read_reports(config_map: Object) -> list[NodeReport]:
    """The reports by node; an entry that is no report is passed over."""
    reports: list[NodeReport] = []
    for node, text in sorted((config_map.get("data") or {}).items()):
        try:
            entry = json.loads(text)
        except ValueError:
            continue
        if isinstance(entry, dict):
            reports.append((node, entry))
    return reports


def matrix(revision: str, reports: Sequence[NodeReport]) -> RenderableType:
    """The matrix, and below it each failure with its values and remedy."""
    columns = list(dict.fromkeys(check for _, entry in reports for check in _verdicts(entry)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("node", "class", *columns):
        table.add_column(column, no_wrap=True)
    for node, entry in reports:
        verdicts = _verdicts(entry)
        cells = [
            Text(*CELLS.get(verdicts.get(c, "skip"), (verdicts.get(c, ""), ""))) for c in columns
        ]
        table.add_row(Text(node), Text(_class(entry)), *cells)
    title = Text(f"revision {revision}, {len(reports)} nodes checked", style="bold")
    return Group(title, table, *_failures(reports), *_unchecked(reports))


def _failures(reports: Sequence[NodeReport]) -> list[Text]:
    lines = []
    for node, entry in reports:
        report = _report(entry)
        for item in report.get("failed") or []:
            head = f"{node}  {item.get('check')}: found {item.get('found')}"
            lines.append(
                Text(f"{head}, need {item.get('required')}\n  remedy: {item.get('remedy')}")
            )
        if not report and entry.get("exitCode"):
            lines.append(Text(f"{node}  exit code {entry['exitCode']}: {entry.get('report')}"))
    return lines


def _unchecked(reports: Sequence[NodeReport]) -> list[Text]:
    names = sorted({str(n) for _, entry in reports for n in _report(entry).get("unchecked") or []})
    told = "not checked, because the check runs in preflight.image: "
    return [Text(told + ", ".join(names), style="yellow")] if names else []


def _report(entry: Object) -> Object:
    report = entry.get("report")
    return report if isinstance(report, dict) else {}


def _verdicts(entry: Object) -> dict[str, str]:
    """Verdict by check; of a report without its list of checks, only what failed."""
    report = _report(entry)
    failed = {str(item.get("check")): "fail" for item in report.get("failed") or []}
    return failed | {str(check[0]): str(check[1]) for check in report.get("checks") or []}


def _class(entry: Object) -> str:
    return str(_report(entry).get("class") or f"exit {entry.get('exitCode')}")
