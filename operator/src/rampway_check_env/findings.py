"""The words of a report: what was found, what was required, whose fault it is and what to do.

It does not know how anything is checked or printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Optional, Sequence, Tuple

__all__ = [
    "EXIT_CODES",
    "OTHER_IMAGE",
    "Fault",
    "Finding",
    "Report",
    "Verdict",
    "failed",
    "passed",
    "skipped",
    "unable",
]


class Verdict(str, Enum):
    """The result of one check; `ERROR` means that the check itself could not be made."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"


class Fault(str, Enum):
    """What a failure says about: the image on any node, this node, or the check itself."""

    BAD_REVISION = "BadRevision"
    BAD_NODE = "BadNode"
    INFRASTRUCTURE = "Infrastructure"


EXIT_CODES = {Fault.BAD_REVISION: 10, Fault.BAD_NODE: 11, Fault.INFRASTRUCTURE: 12}
"""0 is a pass and 2 a usage error."""

OTHER_IMAGE = "not checked: the check runs in preflight.image, not in the engine's image"
"""Reason of a check that is skipped because what it would see is not what the engine will see."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. `fault` is set when the verdict is fail or error, and only then."""

    check: str
    verdict: Verdict
    found: str
    required: str = ""
    remedy: str = ""
    fault: Optional[Fault] = None


@dataclass(frozen=True)
class Report:
    """All findings in the order of the checks, and how long they took."""

    findings: Tuple[Finding, ...]
    took_ms: int

    @property
    def failures(self) -> Sequence[Finding]:
        """The findings that failed or could not be made, worst fault first."""
        order = list(Fault)
        bad = [f for f in self.findings if f.fault is not None]
        return sorted(bad, key=lambda f: order.index(f.fault or Fault.INFRASTRUCTURE))

    @property
    def fault(self) -> Optional[Fault]:
        """The worst fault; None when the check passed.

        A bad image outranks a bad node: it would fail on every other node, too.
        """
        failures = self.failures
        return failures[0].fault if failures else None

    @property
    def unchecked(self) -> Sequence[str]:
        """Checks of the image that another image could not answer for."""
        return [f.check for f in self.findings if f.found == OTHER_IMAGE]

    @property
    def exit_code(self) -> int:
        """0, 10 (BadRevision), 11 (BadNode) or 12 (Infrastructure)."""
        return EXIT_CODES[self.fault] if self.fault else 0


def passed(check: str, found: str, required: str = "") -> Finding:
    """A check that holds."""
    return Finding(check, Verdict.PASS, found, required)


def skipped(check: str, why: str) -> Finding:
    """A check that says nothing here, with the reason."""
    return Finding(check, Verdict.SKIP, why)


def failed(check: str, fault: Fault, *, found: str, required: str, remedy: str) -> Finding:
    """A check that does not hold."""
    return Finding(check, Verdict.FAIL, found, required, remedy, fault)


def unable(check: str, *, found: str, required: str, remedy: str) -> Finding:
    """A check that could not be made though it was needed: nobody's fault that can be named."""
    return Finding(check, Verdict.ERROR, found, required, remedy, Fault.INFRASTRUCTURE)
