"""What a user requires of image and node: the JSON of `preflight.requirements`, checked.

It does not know how a requirement is verified. All faults of a document are reported at once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from rampway_check_env.fields import (
    Field,
    Wrong,
    absolute_path,
    byte_count,
    flag,
    integer,
    list_of,
    one_of,
    read_object,
    record,
    seconds,
    shown,
    text,
)
from rampway_check_env.findings import Fault
from rampway_check_env.versions import GRAMMAR, VersionRange, parse_range, parse_version

__all__ = [
    "UNLIMITED",
    "CustomCheck",
    "DiskSpace",
    "Gpu",
    "InvalidRequirements",
    "Requirements",
    "parse_requirements",
]

UNLIMITED = -1
"""Value of `memlock` that stands for no limit."""


class InvalidRequirements(Exception):
    """The requirements cannot be understood. `faults` has one sentence for each fault."""

    def __init__(self, faults: List[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = tuple(faults)


@dataclass(frozen=True)
class Gpu:
    """GPUs that the process must see; None and empty require nothing. Memory in bytes."""

    count: Optional[int] = None
    compute_capability: Tuple[str, ...] = ()
    free_memory: Optional[int] = None
    mig: Optional[str] = None
    """`Enabled` or `Disabled`."""
    ecc_errors: Optional[int] = None
    xid_errors: Optional[int] = None


@dataclass(frozen=True)
class DiskSpace:
    """Bytes that must be free in the file system of `path`."""

    path: str
    free: int


@dataclass(frozen=True)
class CustomCheck:
    """A command of the user; exit code 0 passes."""

    name: str
    command: Tuple[str, ...]
    timeout: float = 30.0
    fault: Fault = Fault.BAD_REVISION


@dataclass(frozen=True)
class Requirements:
    """Everything required; None and empty require nothing. Sizes in bytes."""

    glibcxx: Optional[VersionRange] = None
    cxxabi: Optional[VersionRange] = None
    glibc: Optional[VersionRange] = None
    cuda_driver: Optional[VersionRange] = None
    torch: Optional[VersionRange] = None
    triton: Optional[VersionRange] = None
    triton_compile: Optional[bool] = None
    gpu: Optional[Gpu] = None
    prefix_cache: Optional[str] = None
    shm: Optional[int] = None
    memlock: Optional[int] = None
    open_files: Optional[int] = None
    disk: Tuple[DiskSpace, ...] = ()
    libraries: Tuple[str, ...] = ()
    custom: Tuple[CustomCheck, ...] = ()


def parse_requirements(text: str) -> Requirements:
    """The requirements in a JSON object; an empty text requires nothing.

    Raises:
        InvalidRequirements: with every fault.

    """
    try:
        raw = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidRequirements(["requirements: not JSON (%s)" % error]) from None
    faults: List[str] = []
    parsed = read_object("requirements", raw, _FIELDS, faults)
    if faults:
        raise InvalidRequirements(faults)
    return Requirements(**parsed)


def _versions(_: str, value: Any, __: List[str]) -> VersionRange:
    parsed = parse_range(value) if isinstance(value, str) else None
    if parsed is None:
        raise Wrong("got %s, need %s" % (shown(value), GRAMMAR))
    return parsed


def _memlock(path: str, value: Any, faults: List[str]) -> int:
    return UNLIMITED if value == "unlimited" else byte_count(path, value, faults)


def _capability(_: str, value: Any, __: List[str]) -> str:
    version = parse_version(value) if isinstance(value, str) else None
    if (
        version is None
        or "." not in value
        or version.text != value.strip()
        or not value.replace(".", "").isdigit()
    ):
        raise Wrong("got %s, need a compute capability such as '9.0'" % shown(value))
    return str(value).strip()


def _command(path: str, value: Any, faults: List[str]) -> Tuple[str, ...]:
    command = list_of(text)(path, value, faults)
    if not value:
        raise Wrong("got an empty list, need a program and its arguments")
    return command


_GPU: Dict[str, "Field[Any]"] = {
    "count": Field("count", integer(0, 64)),
    "computeCapability": Field("compute_capability", list_of(_capability)),
    "freeMemory": Field("free_memory", byte_count),
    "mig": Field("mig", one_of({mode: mode for mode in ("Enabled", "Disabled")})),
    "eccErrors": Field("ecc_errors", integer(0, 1_000_000)),
    "xidErrors": Field("xid_errors", integer(0, 1_000_000)),
}
_DISK: Dict[str, "Field[Any]"] = {
    "path": Field("path", absolute_path, needed=True),
    "free": Field("free", byte_count, needed=True),
}
_CUSTOM: Dict[str, "Field[Any]"] = {
    "name": Field("name", text, needed=True),
    "command": Field("command", _command, needed=True),
    "timeout": Field("timeout", seconds),
    "class": Field("fault", one_of({fault.value: fault for fault in Fault})),
}
_FIELDS: Dict[str, "Field[Any]"] = {
    "glibcxx": Field("glibcxx", _versions),
    "cxxabi": Field("cxxabi", _versions),
    "glibc": Field("glibc", _versions),
    "cudaDriver": Field("cuda_driver", _versions),
    "torch": Field("torch", _versions),
    "triton": Field("triton", _versions),
    "tritonCompile": Field("triton_compile", flag),
    "gpu": Field("gpu", record(Gpu, _GPU)),
    "prefixCache": Field(
        "prefix_cache",
        record(
            lambda backend="rust": backend, {"backend": Field("backend", one_of({"rust": "rust"}))}
        ),
    ),
    "shm": Field("shm", byte_count),
    "memlock": Field("memlock", _memlock),
    "openFiles": Field("open_files", integer(1, 1073741816)),
    "disk": Field("disk", list_of(record(DiskSpace, _DISK))),
    "libraries": Field("libraries", list_of(text)),
    "custom": Field("custom", list_of(record(CustomCheck, _CUSTOM))),
}
