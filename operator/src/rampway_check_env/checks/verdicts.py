"""Findings that several checks word in the same way. It does not know any check."""

from __future__ import annotations

from typing import Optional

from rampway_check_env.child import End, Outcome
from rampway_check_env.findings import Fault, Finding, failed, passed, unable
from rampway_check_env.versions import VersionRange, parse_version

__all__ = ["broken", "version_finding"]


def version_finding(
    check: str, found: str, wanted: Optional[VersionRange], note: str = ""
) -> Finding:
    """Whether the version `found` is as `wanted`; another version is the image's fault."""
    version = parse_version(found)
    if wanted is None or (version is not None and wanted.allows(version)):
        return passed(check, found + note, str(wanted or ""))
    remedy = "install %s %s in the image" % (check, wanted)
    return failed(
        check, Fault.BAD_REVISION, found=found + note, required=str(wanted), remedy=remedy
    )


def broken(check: str, doing: str, outcome: Outcome, required: str, remedy: str) -> Finding:
    """A probe that did not come to a result: a crash or an error is the image's fault, a hang is nobody's."""
    found = "%s %s" % (doing, outcome.describe())
    if outcome.end in (End.TIMEOUT, End.NOT_STARTED):
        return unable(
            check,
            found=found,
            required=required,
            remedy="try again; if it stays so, raise preflight.timeout or run the check by hand in the image",
        )
    return failed(check, Fault.BAD_REVISION, found=found, required=required, remedy=remedy)
