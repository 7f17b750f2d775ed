"""Builds the cluster's programs from committed Go modules into the cache, once per version.

It knows nothing of running them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import gateway_build
from cluster.commands import run, stream
from cluster.layout import bin_folder, cache_folder
from cluster.prerequisites import COMPILER_PROGRAMS, ensure_programs, require_disk, require_go
from cluster.progress import heartbeat, say
from cluster.versions import BINARIES, GO_MINIMUM, Binary

CORES_MEASURED = 2
GO_CACHES = ("GOCACHE", "GOMODCACHE")
BUILD_GIB = {
    "kubernetes": 12.0,
    "helm": 4.0,
    "etcd": 3.0,
    "coredns": 4.0,
    "pause": 0.1,
    "traefik": 6.0,
}
REMEDY = "read the lines above; run the same command again to continue where it stopped"


def build(binaries: Sequence[Binary] = BINARIES) -> None:
    """Makes every binary that is missing or out of date; does nothing when all are there."""
    with _only_one_build():
        missing = [binary for binary in binaries if not is_built(binary)]
        if missing:
            _check(missing)
            for binary in missing:
                _build_one(binary)
            _purge_go_caches()
    say(f"{len(binaries)} programs are ready in {bin_folder()}")


def is_built(binary: Binary) -> bool:
    """Whether the binary exists and was made from exactly today's version, modules and flags."""
    stamp = _stamp_file(binary)
    return (
        (bin_folder() / binary.name).exists()
        and stamp.exists()
        and stamp.read_text() == fingerprint(binary)
    )


def fingerprint(binary: Binary) -> str:
    """The version and a hash of everything committed that decides the binary."""
    digest = hashlib.sha256(json.dumps([binary.package, binary.stamps]).encode())
    for file in sorted(path for path in binary.folder.rglob("*") if path.is_file()):
        digest.update(
            str(file.relative_to(binary.folder)).encode() + b"\0" + file.read_bytes() + b"\0"
        )
    return f"{binary.version} {digest.hexdigest()[:32]}\n"


@dataclass(slots=True)
class GoOutput:
    """What `go build -v` has reported so far."""

    downloaded: int = 0
    compiled: int = 0

    def read(self, line: str) -> None:
        """Counts modules and packages; anything else is an error or a warning."""
        if line.startswith("go: downloading "):
            self.downloaded += 1
        elif " " not in line and not line.startswith("#"):
            self.compiled += 1

    def __str__(self) -> str:
        return f"{self.downloaded} modules downloaded, {self.compiled} packages compiled"


def _check(missing: Sequence[Binary]) -> None:
    components = {binary.component for binary in missing}
    if "pause" in components:
        ensure_programs(COMPILER_PROGRAMS)
    if components != {"pause"}:
        require_go(GO_MINIMUM)
    need = max(BUILD_GIB[component] for component in components)
    names = ", ".join(binary.name for binary in missing)
    require_disk(bin_folder(), need, f"to build {names} (Go's caches, deleted afterwards)")
    total = sum(_expected_s(binary) for binary in missing)
    say(f"building {len(missing)} programs: about {total / 60:.0f} min on {os.cpu_count()} cores")


def _build_one(binary: Binary) -> None:
    folder = bin_folder()
    (folder / ".stamps").mkdir(parents=True, exist_ok=True)
    made = folder / f".{binary.name}.new"
    logs = cache_folder() / "cluster" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(_go_caches() / "tmp", ignore_errors=True)
    (_go_caches() / "tmp").mkdir(parents=True)
    output = GoOutput()
    argv = _c_command(binary, made) if binary.component == "pause" else _go_command(binary, made)
    try:
        with heartbeat(
            f"building {binary.name} {binary.version}", _expected_s(binary), output.__str__
        ):
            stream(
                argv, on_line=output.read, remedy=REMEDY, log=logs / f"build-{binary.name}.log",
                cwd=_folder(binary), env=_go_environment(),
            )  # fmt: skip
        if binary.component == "traefik":
            gateway_build.keep_crds(_assembled(), _go_environment())
        made.rename(folder / binary.name)
    finally:
        made.unlink(missing_ok=True)
    _stamp_file(binary).write_text(fingerprint(binary))


def _folder(binary: Binary) -> Path:
    """Where it is built: in its committed module, or in one that is put together from it."""
    if binary.component == "traefik":
        return gateway_build.assemble(_assembled(), _go_environment())
    return binary.folder


def _assembled() -> Path:
    return _go_caches() / "traefik"


def _go_command(binary: Binary, made: Path) -> list[str | Path]:
    flags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in binary.stamps)])
    return ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", made, binary.package]


def _c_command(binary: Binary, made: Path) -> list[str | Path]:
    return ["gcc", "-Os", "-static", "-s", "-o", made, binary.package]


def _go_environment() -> dict[str, str]:
    caches = {
        "GOCACHE": str(_go_caches() / "build"),
        "GOMODCACHE": str(_go_caches() / "mod"),
        "GOTMPDIR": str(_go_caches() / "tmp"),  # an interrupted build leaves its work there
    }
    flags = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    return {**os.environ, **caches, **flags}


def _go_caches() -> Path:
    # Apart from the user's own, so that purging 11 GB of them costs nobody anything.
    return cache_folder() / "go"


def _purge_go_caches() -> None:
    if (_go_caches() / "mod").exists():
        say("deleting Go's caches of this build")
        # Go makes its module cache read-only: only Go deletes it without trouble.
        ours = [f"{name}={value}" for name, value in _go_environment().items() if name in GO_CACHES]
        run(
            ["env", *ours, "go", "clean", "-cache", "-modcache"],
            remedy=f"delete {_go_caches()} by hand",
            timeout_s=600,
        )
    shutil.rmtree(_go_caches(), ignore_errors=True)


def _expected_s(binary: Binary) -> float:
    return binary.seconds * CORES_MEASURED / (os.cpu_count() or CORES_MEASURED)


def _stamp_file(binary: Binary) -> Path:
    return bin_folder() / ".stamps" / binary.name


@contextmanager
def _only_one_build() -> Iterator[None]:
    bin_folder().mkdir(parents=True, exist_ok=True)
    with (bin_folder() / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with heartbeat("waiting for another build of the same programs"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
