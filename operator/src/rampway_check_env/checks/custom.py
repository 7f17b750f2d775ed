"""The user's own commands: exit code 0 passes, and the last line printed is shown.

It does not know what they check; whose fault a failure is, the requirement says.
"""

from __future__ import annotations

import shlex
from typing import List

from rampway_check_env.child import End
from rampway_check_env.context import Context
from rampway_check_env.findings import Finding, failed, passed, unable
from rampway_check_env.requirements import CustomCheck

__all__ = ["check"]


def check(context: Context) -> List[Finding]:
    """One finding, `custom.<name>`, for each command."""
    return [_one(context, item) for item in context.requirements.custom]


def _one(context: Context, item: CustomCheck) -> Finding:
    name, command = "custom." + item.name, " ".join(map(shlex.quote, item.command))
    outcome = context.command(item.command, limit=item.timeout)
    if outcome.ok:
        return passed(name, outcome.last_line or "exit code 0")
    if outcome.end is End.TIMEOUT:
        return unable(
            name,
            found=outcome.describe(),
            required="exit code 0",
            remedy="raise its timeout, or see why it hangs: %s" % command,
        )
    return failed(
        name,
        item.fault,
        found=outcome.describe(),
        required="exit code 0",
        remedy="run it by hand in the image: %s" % command,
    )
