"""Builds the project's own wheels into dist/, from where the Dockerfiles copy them.

It knows where each distribution's sources are; docs/adr says why this happens outside the images.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cluster.commands import stream
from cluster.errors import ClusterError
from cluster.layout import cache_folder
from cluster.progress import heartbeat

REMEDY = "read the lines above; fix the package and build again"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One wheel: where it is built, what it depends on, and which tool makes it."""

    name: str
    folder: str
    sources: tuple[str, ...]
    tool: str
    expected_s: float


DISTRIBUTIONS = {
    item.name: item
    for item in (
        Distribution("rampway-operator", "operator", ("operator",), "hatchling", 3),
        Distribution("rampway-server", "server", ("server",), "hatchling", 3),
        Distribution(
            "rampway-prefix-cache", "rust/prefix-cache-py",
            ("rust", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"), "maturin", 90,
        ),
    )
}  # fmt: skip


def build(repository: Path, names: Iterable[str]) -> None:
    """Makes dist/ hold exactly one current wheel of each; unchanged sources build nothing.

    That is not only faster: an unchanged file keeps the image's layers in the builder's cache.
    """
    with _one_at_a_time():
        _build(repository, names)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lets one process build at a time: they share Cargo's outputs and dist/; `make setup` waits, too."""
    lock = cache_folder() / "cargo.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _build(repository: Path, names: Iterable[str]) -> None:
    for name in sorted(names):
        distribution = DISTRIBUTIONS[name]
        wanted = fingerprint(repository, distribution)
        stamp = repository / "dist" / f".{name}"
        if stamp.exists() and stamp.read_text() == wanted and wheels_of(repository, distribution):
            continue
        stamp.unlink(missing_ok=True)
        for old in wheels_of(repository, distribution):
            old.unlink()
        _build_one(repository, distribution)
        if not wheels_of(repository, distribution):
            raise ClusterError(f"{distribution.tool} made no wheel of {name}", REMEDY)
        stamp.write_text(wanted)


def wheels_of(repository: Path, distribution: Distribution) -> list[Path]:
    """The wheels of this distribution in dist/."""
    return list((repository / "dist").glob(f"{distribution.name.replace('-', '_')}-*.whl"))


def fingerprint(repository: Path, distribution: Distribution) -> str:
    """A hash of everything that the wheel is made from, build outputs and tests left out."""
    digest = hashlib.sha256()
    for file in sorted(_source_files(repository, distribution)):
        digest.update(str(file.relative_to(repository)).encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _source_files(repository: Path, distribution: Distribution) -> list[Path]:
    skipped = {"target", "__pycache__", "tests", "fuzz", "dist"}
    found = []
    for source in distribution.sources:
        path = repository / source
        if path.is_file():
            found.append(path)
        for folder, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name not in skipped and name[0] != "."]
            found += [Path(folder, name) for name in files if not name.endswith((".pyc", ".so"))]
    return found


def _build_one(repository: Path, distribution: Distribution) -> None:
    if importlib.util.find_spec(distribution.tool) is None and not shutil.which(distribution.tool):
        raise ClusterError(
            f"{distribution.tool} is not installed for {sys.executable}",
            "install requirements/dev.txt into this Python (make setup does)",
        )
    folder = repository / distribution.folder
    if not (folder / "pyproject.toml").exists():
        raise ClusterError(f"{folder} holds no pyproject.toml", "check out the whole repository")
    output = str(repository / "dist")
    argv = [sys.executable, "-m", distribution.tool, "build"]
    # `--compatibility pypi` refuses a wheel that needs a newer glibc than its tag promises.
    argv += ["-t", "wheel", "-d", output] if distribution.tool == "hatchling" else [
        "--release", "--locked", "--compatibility", "pypi", "-o", output,
    ]  # fmt: skip
    with heartbeat(f"building the wheel of {distribution.name}", distribution.expected_s):
        # Cargo's outputs outlive this clone: the next one compiles only what is new.
        environment = os.environ | {"CARGO_TARGET_DIR": str(cache_folder() / "cargo")}
        stream(argv, on_line=lambda _line: None, remedy=REMEDY, cwd=folder, env=environment)
