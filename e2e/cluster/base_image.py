"""Decides what the images stand on, and makes it from Debian packages where nothing can be pulled.

It knows nothing of what is installed on top.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from cluster.commands import run, stream
from cluster.engines import Buildah, Engine
from cluster.prerequisites import DEBOOTSTRAP_PROGRAMS, ensure_programs, require_disk
from cluster.progress import heartbeat

PUBLIC = "python:3.11-slim-bookworm"
LOCAL = "localhost/rampway-base:1"
SUITE = "bookworm"
PACKAGES = "python3,python3-venv,ca-certificates"
REMEDY = "the package mirror must be reachable; RAMPWAY_DEBIAN_MIRROR names another"


def ensure(engine: Engine) -> str:
    """The base image's name: RAMPWAY_BASE_IMAGE, a public one for Docker, else one made here."""
    if chosen := os.environ.get("RAMPWAY_BASE_IMAGE"):
        return chosen
    if not isinstance(engine, Buildah):
        return PUBLIC
    if engine.image_id(LOCAL) is None:
        _make()
    return LOCAL


def _make() -> None:
    ensure_programs(DEBOOTSTRAP_PROGRAMS)
    require_disk(Path(tempfile.gettempdir()), 1, "for the base image")
    folder = Path(tempfile.mkdtemp(prefix="rampway-base-"))
    container = ""
    try:
        with heartbeat(f"making {LOCAL} from Debian {SUITE} packages", expected_s=90):
            _bootstrap(folder / "root")
            container = run(["buildah", "from", "scratch"], remedy=REMEDY).strip()
            run(
                ["buildah", "add", "-q", container, folder / "root", "/"],
                remedy=REMEDY,
                timeout_s=600,
            )
            run(["buildah", "commit", "-q", container, LOCAL], remedy=REMEDY, timeout_s=600)
    finally:
        if container:
            run(["buildah", "rm", container], remedy=REMEDY)
        shutil.rmtree(folder, ignore_errors=True)


def _bootstrap(root: Path) -> None:
    mirror = [os.environ["RAMPWAY_DEBIAN_MIRROR"]] if "RAMPWAY_DEBIAN_MIRROR" in os.environ else []
    argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root), *mirror]
    stream(argv, on_line=lambda _line: None, remedy=REMEDY)
    for leftover in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*")):
        if leftover.is_file():
            leftover.unlink()
