"""Version of the C library, and whether it is glibc at all.

It does not know who needs which symbol (`symbols.py`).
"""

from __future__ import annotations

import os
from typing import List, Optional

from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.versions import highest, parse_version

__all__ = ["check"]


def check(context: Context) -> List[Finding]:
    """One finding for `glibc`."""
    wanted = context.requirements.glibc
    required = str(wanted or "")
    if context.loader.is_musl:
        if wanted is None:
            return [skipped("glibc", "this python is linked with musl")]
        remedy = "build the image on a base with glibc (Debian, Ubuntu, RHEL); musl bases cannot run CUDA wheels"
        return [failed("glibc", Fault.BAD_REVISION, found="musl", required=required, remedy=remedy)]
    text = _version(context)
    version = parse_version(text or "")
    if version is None:
        if wanted is None:
            return [skipped("glibc", "no version can be read")]
        return [
            failed(
                "glibc",
                Fault.BAD_REVISION,
                found="no version can be read",
                required=required,
                remedy="build the image on a base with glibc",
            )
        ]
    if wanted is None or wanted.allows(version):
        return [passed("glibc", str(version), required)]
    return [
        failed(
            "glibc",
            Fault.BAD_REVISION,
            found=str(version),
            required=required,
            remedy="build the image on a newer base",
        )
    ]


def _version(context: Context) -> Optional[str]:
    """What the C library says of itself; of another root, the highest version its file offers."""
    if context.machine.root:
        found = context.loader.read(context.loader.from_python("libc.so.6") or "")
        return str(
            highest(
                name[6:] for name in (found.defines if found else ()) if name.startswith("GLIBC_")
            )
            or ""
        )
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    except (ValueError, OSError):
        return None
