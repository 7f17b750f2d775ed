"""Writes the state diagram of docs/rollouts.md anew from the table of phases: `python operator/tools/state_diagram.py`."""

from __future__ import annotations

import re
from pathlib import Path

from rampway_operator.core.phases import as_mermaid

PAGE = Path(__file__).resolve().parents[2] / "docs" / "rollouts.md"
BLOCK = re.compile(r"```mermaid\n.*?\n```", re.DOTALL)


def main() -> None:
    """Replace the one Mermaid block of the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        BLOCK.sub(lambda _: f"```mermaid\n{as_mermaid()}\n```", text, count=1), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
