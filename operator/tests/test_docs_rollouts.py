"""docs/rollouts.md tells the truth: its diagram is the table of phases, and every test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from rampway_operator.core.phases import MOVES, as_mermaid

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rollouts.md").read_text(encoding="utf-8")


def test_given_the_diagram_then_it_is_the_table_of_phases() -> None:
    assert f"```mermaid\n{as_mermaid()}\n```" in PAGE, "run operator/tools/state_diagram.py"
    assert as_mermaid().count("-->") == 1 + sum(len(after) for after in MOVES.values())


def test_given_the_reported_faults_then_each_names_a_test_that_exists() -> None:
    folders = ("operator/tests", "server/tests", "e2e/tests")
    files = [path for folder in folders for path in (ROOT / folder).glob("test_*.py")]
    known = {
        name
        for path in files
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    named = dict(re.findall(r"^\| (T\d+) \|.*\| `(test_\w+)` \|$", PAGE, re.MULTILINE))

    assert len(named) == PAGE.count("\n| T"), "a row is not of the form line, what must hold, test"
    assert {line for line, test in named.items() if test not in known} == set()


def test_given_the_lines_of_the_research_then_each_is_in_the_table_or_among_those_left_out() -> (
    None
):
    lines = {f"T{number}" for number in range(1, 88)} - {
        f"T{number}" for number in (5, 14, 19, 23, 30, 39, 43, 61, 66, 82)
    }
    assert set(re.findall(r"\bT\d+\b", PAGE)) == lines, "the research has no other numbers"
