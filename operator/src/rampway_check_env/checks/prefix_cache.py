"""Whether the prefix cache of Rampway's engine works and is really the Rust one.

Engines fall back to slower caches silently; a rollout must not. It does not know the cache's algorithm.
"""

from __future__ import annotations

from typing import List

from rampway_check_env.checks.verdicts import broken
from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped

__all__ = ["check"]

_LIMIT = 30.0
_REMEDY = "install the wheel of rampway-prefix-cache of the engine's version in the image"


def check(context: Context) -> List[Finding]:
    """One finding for `prefixCache`."""
    wanted = context.requirements.prefix_cache
    required = "backend %s" % wanted if wanted else ""
    if not context.installed("rampway_prefix_cache"):
        if wanted is None:
            return [skipped("prefixCache", "not installed")]
        return [
            failed(
                "prefixCache",
                Fault.BAD_REVISION,
                found="not installed",
                required=required,
                remedy=_REMEDY,
            )
        ]
    outcome = context.probe("prefix_tree", limit=_LIMIT)
    data = outcome.data
    if not data:
        return [broken("prefixCache", "trying the prefix cache", outcome, required, _REMEDY)]
    if not data["native"]:
        return [
            failed(
                "prefixCache",
                Fault.BAD_REVISION,
                found="%s is no native library" % (data["file"] or "the cache"),
                required=required,
                remedy=_REMEDY,
            )
        ]
    if data["matched"] != data["expected"]:
        found = "found %d of %d cached tokens again" % (data["matched"], data["expected"])
        return [
            failed(
                "prefixCache",
                Fault.BAD_REVISION,
                found=found,
                required="all of them",
                remedy=_REMEDY,
            )
        ]
    return [
        passed(
            "prefixCache",
            ("rust %s, tree consistent" % data["version"]).replace("  ", " "),
            required,
        )
    ]
