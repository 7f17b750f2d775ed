"""Whether every symbol version that the engine's shared objects need is offered by what they would load.

This finds the real failure ("version `GLIBCXX_3.4.30' not found") before it happens, with no requirement
written. It loads nothing. Versions of other libraries than the C, C++ and compiler runtimes are not judged:
packages such as torch load those by ways of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from rampway_check_env.context import Context
from rampway_check_env.findings import Fault, Finding, failed, passed, skipped
from rampway_check_env.modules import shared_objects
from rampway_check_env.versions import highest

__all__ = ["check"]

_DEFAULTS: Dict[str, Sequence[str]] = {
    "rampway_prefix_cache": ("",),
    "torch": (".", "lib"),
    "triton": ("_C",),
}
"""Folders with the extensions of each package that is looked at where nothing is named."""
_FAMILIES = ("GLIBCXX_", "CXXABI_", "GLIBC_", "GCC_")


@dataclass(frozen=True)
class _Missing:
    """A version that `who` needs of `provider` and that the file at `path` does not offer."""

    version: str
    who: str
    provider: str
    path: str
    offered: str


def check(context: Context) -> List[Finding]:
    """One finding for `symbols`, with the highest version missing."""
    objects, unknown = _objects(context)
    if unknown:
        remedy = (
            "correct requirements.libraries: give absolute paths or the names of installed modules"
        )
        return [
            failed(
                "symbols",
                Fault.BAD_REVISION,
                found="not found: %s" % ", ".join(unknown),
                required="every library present",
                remedy=remedy,
            )
        ]
    if not objects:
        return [
            skipped(
                "symbols", "none of %s is installed and no library is named" % ", ".join(_DEFAULTS)
            )
        ]
    missing = [item for path in objects for item in _missing(context, path)]
    if not missing:
        count = "%d shared object%s" % (len(objects), "" if len(objects) == 1 else "s")
        return [passed("symbols", "every needed version is there (%s)" % count)]
    worst = _worst(missing)
    more = "" if len(missing) == 1 else " and %d more" % (len(missing) - 1)
    return [
        failed(
            "symbols",
            Fault.BAD_REVISION,
            found=_shown(worst),
            required="%s, needed by %s%s" % (worst.version, worst.who, more),
            remedy="build the image on a newer base, or install packages built for this one",
        )
    ]


def _objects(context: Context) -> Tuple[List[str], List[str]]:
    """Paths to look at, and names for which there is none."""
    named, path = context.requirements.libraries, context.machine.module_path
    if not named:
        return [
            o
            for package, folders in _DEFAULTS.items()
            for o in shared_objects(package, path, folders)
        ], []
    found: List[str] = []
    unknown: List[str] = []
    for name in named:
        objects = (
            [name]
            if name.startswith("/") and context.loader.read(name)
            else list(shared_objects(name, path))
        )
        found += objects
        if not objects:
            unknown.append(name)
    return found, unknown


def _missing(context: Context, path: str) -> List[_Missing]:
    target = context.loader.read(path)
    if target is None:
        return []
    loaded = context.loader.loaded_with(path)
    missing: List[_Missing] = []
    for provider, versions in target.needs.items():
        judged = [v.name for v in versions if not v.weak and v.name.startswith(_FAMILIES)]
        file = loaded.get(provider, "")
        offers = context.loader.read(file) if file else None
        if not judged or (offers is not None and not offers.defines):
            continue  # an object without versions satisfies every one, with a warning of the loader
        defines = offers.defines if offers else ()
        missing += [
            _Missing(name, path, provider, file, _best(defines, name))
            for name in judged
            if name not in defines
        ]
    return missing


def _shown(missing: _Missing) -> str:
    if not missing.path:
        return "%s is not found" % missing.provider
    if not missing.offered:
        return "%s offers no %s" % (missing.path, missing.version.partition("_")[0])
    return "%s offers at most %s" % (missing.path, missing.offered)


def _best(defines: Sequence[str], like: str) -> str:
    prefix = like.partition("_")[0] + "_"
    version = highest(name[len(prefix) :] for name in defines if name.startswith(prefix))
    return prefix + str(version) if version else ""


def _worst(missing: Sequence[_Missing]) -> _Missing:
    """The highest version missing: who gets that gets the others, too."""
    top = highest(item.version.partition("_")[2] for item in missing)
    return next(
        (item for item in missing if top and item.version.endswith("_" + str(top))), missing[0]
    )
