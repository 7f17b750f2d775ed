"""GLIBCXX and CXXABI versions of the libstdc++ that this image's python would load.

It loads nothing: the versions stand in the file. It does not know who needs them (`symbols.py`).
"""

from __future__ import annotations

from typing import List, Optional

from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.versions import Version, VersionRange, highest

__all__ = ["check"]

SONAME = "libstdc++.so.6"


def check(context: Context) -> List[Finding]:
    """A finding for `glibcxx` and, where required, for `cxxabi`."""
    wanted = context.requirements
    path = context.loader.from_python(SONAME)
    findings = [_family(context, "glibcxx", "GLIBCXX_", path, wanted.glibcxx)]
    if wanted.cxxabi:
        findings.append(_family(context, "cxxabi", "CXXABI_", path, wanted.cxxabi))
    return findings


def _family(
    context: Context, name: str, prefix: str, path: Optional[str], wanted: Optional[VersionRange]
) -> Finding:
    required = str(wanted or "")
    if path is None:
        if wanted is None:
            return skipped(name, "no %s in this image" % SONAME)
        return failed(
            name,
            Fault.BAD_REVISION,
            found="no %s" % SONAME,
            required=required,
            remedy="install libstdc++6 (libstdc++ on RPM systems) in the image",
        )
    version = _highest(context, path, prefix)
    found = "%s in %s" % (version or "no %s version" % prefix.rstrip("_"), path)
    if wanted is None or (version is not None and wanted.allows(version)):
        return passed(name, found, required)
    return failed(
        name, Fault.BAD_REVISION, found=found, required=required, remedy=_remedy(context, path)
    )


def _highest(context: Context, path: str, prefix: str) -> Optional[Version]:
    found = context.loader.read(path)
    return highest(
        name[len(prefix) :] for name in (found.defines if found else ()) if name.startswith(prefix)
    )


def _remedy(context: Context, path: str) -> str:
    if "LD_LIBRARY_PATH" in context.machine.environ and not path.startswith(("/lib", "/usr/lib")):
        return "LD_LIBRARY_PATH leads to this file: take its folder out, or put a newer libstdc++ there"
    return "build the image on a newer base, or install a newer libstdc++ where the loader finds it first"
