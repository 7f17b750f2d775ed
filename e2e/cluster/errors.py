"""The one error this tool shows to people.

It knows nothing of exit codes: `cli` decides those.
"""

from __future__ import annotations


class ClusterError(Exception):
    """What went wrong in one line (got X, need Y) and what to do about it."""

    def __init__(self, message: str, remedy: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.detail = detail

    def __str__(self) -> str:
        shown = f"error: {self.message}\n  remedy: {self.remedy}"
        return f"{self.detail.rstrip()}\n{shown}" if self.detail else shown
