"""Names the project's images, how each is built from which, and builds them in that order.

It knows the Dockerfiles in images/, not how an engine runs them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import base_image, engines, lookalike, wheels
from cluster.engines import Recipe
from cluster.errors import ClusterError
from cluster.layout import cache_folder
from cluster.prerequisites import require_disk

REPOSITORY = Path(__file__).parents[2]
OLD_LIBSTDCXX = "old-libstdcxx"
GRAMMAR = "operator, simulated, full, demo or all, with -old-libstdcxx or -v2, -v3, … appended"


@dataclass(frozen=True, slots=True)
class Plain:
    """An image with a Dockerfile of its own; `gib` is what building it takes beside the caches."""

    repository: str
    file: str
    target: str
    wheels: tuple[str, ...]
    parent: str
    gib: float
    seconds: float


_SERVER_WHEELS = ("rampway-server", "rampway-prefix-cache")
PLAIN = {
    "operator": Plain(
        "localhost/rampway/operator", "operator", "", ("rampway-operator",), "", 1, 60
    ),
    "simulated": Plain(
        "localhost/rampway/server", "server", "simulated", _SERVER_WHEELS, "", 1, 60
    ),
    "full": Plain("localhost/rampway/server", "server", "full", _SERVER_WHEELS, "", 14, 300),
    "demo": Plain("localhost/rampway/server", "demo", "", (), "full", 1, 60),
}


@dataclass(frozen=True, slots=True)
class Image:
    """One image to build: a plain one, or a variant on top of one."""

    plain: str
    variant: str = ""

    @property
    def tag(self) -> str:
        """The full name; the operator's plain tag is `dev`, as in the chart's examples."""
        plain = PLAIN[self.plain]
        tag = "dev" if self.plain == "operator" else self.plain
        return f"{plain.repository}:{tag}" + (f"-{self.variant}" if self.variant else "")

    @property
    def parent(self) -> Image | None:
        """The image that must be built before, if any."""
        if self.variant:
            return Image(self.plain)
        return Image(PLAIN[self.plain].parent) if PLAIN[self.plain].parent else None


def parse(name: str) -> Image:
    """The image that a name on the command line means."""
    found = re.fullmatch(rf"({'|'.join(PLAIN)})(?:-({OLD_LIBSTDCXX}|v\d+))?", name)
    if not found:
        raise ClusterError(f"image name is unknown: got {name!r}", f"use {GRAMMAR}")
    return Image(found[1], found[2] or "")


def in_order(names: Sequence[str]) -> list[Image]:
    """The images asked for and those below them, each once, parents first."""
    ordered: list[Image] = []
    wanted = [parse(name) for name in names if name != "all"]
    if "all" in names:
        wanted = [*(Image(plain) for plain in PLAIN), *wanted]
    for image in wanted:
        line = [image]
        while (above := line[0].parent) is not None:
            line.insert(0, above)
        ordered += [item for item in line if item not in ordered]
    return ordered


def build(names: Sequence[str], base_image_name: str = "") -> list[str]:
    """Builds images and what they stand on; returns the names of those that were asked for."""
    wanted = in_order(names)
    engine = engines.choose()
    missing = [image for image in wanted if not image.variant and not engine.image_id(image.tag)]
    gib = sum(PLAIN[image.plain].gib for image in missing)
    if gib:
        require_disk(cache_folder(), gib, "to build the images")
    needed = {name for image in wanted if not image.variant for name in PLAIN[image.plain].wheels}
    if needed:
        wheels.build(REPOSITORY, needed)
    base = base_image_name or base_image.ensure(engine)
    for image in wanted:
        engine.build(_recipe(image, base))
    asked = {parse(name).tag for name in names if name != "all"}
    return [image.tag for image in wanted if "all" in names or image.tag in asked]


def _recipe(image: Image, base: str) -> Recipe:
    plain = PLAIN[image.plain]
    if image.variant == OLD_LIBSTDCXX:
        args = {"FROM_IMAGE": Image(image.plain).tag}
        context = lookalike.build(REPOSITORY / "images" / OLD_LIBSTDCXX)
        dockerfile = REPOSITORY / "images" / "old-libstdcxx.Dockerfile"
        return Recipe(image.tag, dockerfile, context, args=args)
    if image.variant:
        args = {"FROM_IMAGE": Image(image.plain).tag, "VARIANT": image.variant}
        return Recipe(
            image.tag, REPOSITORY / "images" / "variant.Dockerfile", REPOSITORY, args=args
        )
    args = {"BASE_IMAGE": base}
    if image.parent:
        args["FROM_IMAGE"] = image.parent.tag
    dockerfile = REPOSITORY / "images" / f"{plain.file}.Dockerfile"
    return Recipe(image.tag, dockerfile, REPOSITORY, plain.target, args, plain.seconds)
