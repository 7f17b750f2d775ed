"""Builds images with Docker when its engine answers, else with Buildah, by the same Dockerfiles.

It knows no image of this project.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.commands import run, stream, succeeds
from cluster.errors import ClusterError
from cluster.layout import cache_folder
from cluster.prerequisites import BUILDAH_PROGRAMS, ensure_programs
from cluster.progress import heartbeat, say

STEP = re.compile(r"(\[\d+/\d+\] )?STEP \d+/\d+|#\d+ \[")  # Buildah, BuildKit
LABEL = "dev.rampway.image"
BUILD_REMEDY = "read the lines above; the build continues from its last finished layer"
# Set by people whose packages come from a mirror; each is an ARG of the Dockerfiles.
PASSED_ARGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image to build; `context` is the folder that COPY reads from."""

    tag: str
    dockerfile: Path
    context: Path
    target: str = ""
    args: Mapping[str, str] | None = None
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, unpacked in a folder of the engine's store; `size` is that of its archive."""

    diff_id: str
    folder: Path
    size: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What an image is made of: its OCI configuration and its layers, lowest first."""

    config: dict[str, object]
    layers: tuple[Layer, ...]


class Engine(ABC):
    """What builds images and holds them until they are loaded or pushed."""

    name: str

    @abstractmethod
    def image_id(self, image: str) -> str | None:
        """The image's id, which changes with its content; None when it is not in the store."""

    @abstractmethod
    def save_command(self, image: str) -> list[str]:
        """A command that writes the image to its standard output as an archive."""

    @abstractmethod
    def build_command(self, recipe: Recipe) -> list[str]:
        """The command that builds a recipe, without its variables."""

    @abstractmethod
    def clean(self) -> None:
        """Removes what builds of this project left: containers, images without a name."""

    def contents(self, image: str) -> Contents | None:  # noqa: ARG002 - for engines that can
        """The image's unpacked layers, or None when the engine does not show where they are."""
        return None

    def environment(self) -> dict[str, str]:
        """What the engine's commands run with."""
        return dict(os.environ)

    def build(self, recipe: Recipe) -> None:
        """Builds and tags the image; unchanged layers come from the engine's cache."""
        passed = {name: os.environ[name] for name in PASSED_ARGS if name in os.environ}
        args = {**passed, **(recipe.args or {})}
        argv = self.build_command(recipe)
        for key, value in args.items():
            argv += ["--build-arg", f"{key}={value}"]
        step = _Step()
        logs = cache_folder() / "images"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{recipe.tag.rpartition('/')[2].replace(':', '-')}.log"
        try:
            with heartbeat(f"building {recipe.tag}", recipe.expected_s, step.__str__):
                stream(
                    [*argv, str(recipe.context)], on_line=step.read, remedy=BUILD_REMEDY,
                    log=log, env=self.environment(),
                )  # fmt: skip
        finally:
            self.clean()


class _Step:
    """The last step that the builder began, for the heartbeat."""

    def __init__(self) -> None:
        self._text = ""

    def read(self, line: str) -> None:
        if STEP.match(line):
            self._text = line[:100]
            say(f"  {self._text}")

    def __str__(self) -> str:
        return self._text


class Docker(Engine):
    """Docker with BuildKit."""

    name = "docker"

    def image_id(self, image: str) -> str | None:
        """The id of the image's configuration."""
        with suppress(ClusterError):
            return run(["docker", "image", "inspect", "-f", "{{.Id}}", image], remedy="").strip()
        return None

    def save_command(self, image: str) -> list[str]:
        """Writes a Docker archive."""
        return ["docker", "save", image]

    def build_command(self, recipe: Recipe) -> list[str]:
        """Plain progress: one line a step, also without a terminal."""
        target = ["--target", recipe.target] if recipe.target else []
        file = str(recipe.dockerfile)
        return ["docker", "build", "--progress=plain", "-f", file, "-t", recipe.tag, *target]

    def clean(self) -> None:
        """Removes images that lost their name to a newer build of ours."""
        prune = ["docker", "image", "prune", "-f", "--filter", f"label={LABEL}"]
        succeeds(prune, timeout_s=300)

    def environment(self) -> dict[str, str]:
        """BuildKit also where it is not the default: the Dockerfiles mount caches."""
        return {**os.environ, "DOCKER_BUILDKIT": "1"}


class Buildah(Engine):
    """Buildah, which needs no daemon; isolation by chroot works inside containers too."""

    name = "buildah"

    def __init__(self) -> None:
        self._containers_before = self._containers()

    def image_id(self, image: str) -> str | None:
        """The id of the image's configuration."""
        argv = ["buildah", "inspect", "--type", "image", "-f", "{{.FromImageID}}", image]
        with suppress(ClusterError):
            return run(argv, remedy="").strip()
        return None

    def save_command(self, image: str) -> list[str]:
        """Writes a Docker archive: unlike an OCI one it is not first made on disk."""
        return ["buildah", "push", "-q", image, f"docker-archive:/dev/stdout:{image}"]

    def build_command(self, recipe: Recipe) -> list[str]:
        """Keeps layers as a cache; Docker's format keeps the image's id when it is saved."""
        target = ["--target", recipe.target] if recipe.target else []
        # The host's certificates while RUN lines run: builds behind a TLS-terminating proxy work,
        # and no image carries a machine's own authorities.
        authorities = Path("/etc/ssl/certs/ca-certificates.crt")
        mount = ["--volume", f"{authorities}:{authorities}:ro"] if authorities.exists() else []
        return [
            "buildah", "bud", "--layers", "--force-rm", "--format", "docker", "--isolation",
            "chroot", *mount, "-f", str(recipe.dockerfile), "-t", recipe.tag, *target,
        ]  # fmt: skip

    def clean(self) -> None:
        """Removes working containers that a stopped build left, and images without a name."""
        # Only what appeared since this engine was made: someone else may be building too.
        for container in self._containers() - self._containers_before:
            succeeds(["buildah", "rm", container])
        filters = ["--filter", "dangling=true", "--filter", f"label={LABEL}"]
        dangling = run(["buildah", "images", "-q", *filters], remedy="").split()
        for image in dangling:
            succeeds(["buildah", "rmi", image])

    def contents(self, image: str) -> Contents | None:
        """What its overlay store records of the image; None when that looks different some day."""
        config = json.loads(run(["buildah", "inspect", "--type", "image", image], remedy=""))[
            "OCIv1"
        ]
        store = json.loads(run(["buildah", "info"], remedy=""))["store"]
        root = Path(store["GraphRoot"])
        try:
            recorded = json.loads((root / "overlay-layers/layers.json").read_text())
            by_id = {layer["id"]: layer for layer in recorded}
            images = json.loads((root / "overlay-images/images.json").read_text())
            (top,) = (item["layer"] for item in images if item["id"] == self.image_id(image))
            layers = [
                Layer(
                    layer["diff-digest"],
                    root / "overlay" / layer["id"] / "diff",
                    layer["diff-size"],
                )
                for layer in _line_of(by_id, top)
            ]
        except (OSError, ValueError, KeyError):
            return None
        same = [layer.diff_id for layer in layers] == config["rootfs"]["diff_ids"]
        return Contents(config, tuple(layers)) if same else None

    def environment(self) -> dict[str, str]:
        """Buildah keeps cache mounts in TMPDIR/buildah-cache/<id>: that becomes our uv cache."""
        cache = cache_folder() / "buildah-cache" / "rampway-uv"
        if not cache.exists():
            cache.parent.mkdir(parents=True, exist_ok=True)
            uv = cache_folder() / "uv"
            uv.mkdir(exist_ok=True)
            cache.symlink_to(uv)
        return {**os.environ, "TMPDIR": str(cache_folder())}

    def _containers(self) -> set[str]:
        found = json.loads(run(["buildah", "containers", "--json"], remedy="") or "null")
        return {container["id"] for container in found or []}


def _line_of(by_id: Mapping[str, Mapping[str, Any]], top: str) -> list[Mapping[str, Any]]:
    line = [by_id[top]]
    while parent := line[0].get("parent"):
        line.insert(0, by_id[parent])
    return line


def choose() -> Engine:
    """Docker when its engine answers (its client alone is not enough), else Buildah."""
    if succeeds(["docker", "version", "-f", "{{.Server.Version}}"], timeout_s=10):
        return Docker()
    if os.geteuid() != 0:
        raise ClusterError(
            f"no Docker engine answers, and Buildah needs root: got user id {os.geteuid()}, need 0",
            "start Docker, or run it with sudo",
        )
    ensure_programs(BUILDAH_PROGRAMS)
    # Debian's default driver copies every layer whole.
    os.environ.setdefault("STORAGE_DRIVER", "overlay")
    return Buildah()
