"""Moves images from the builder's store into a cluster's node, without an archive on disk.

It knows nothing of how images are built.
"""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cluster import sharing
from cluster.commands import end_group, last_lines, run
from cluster.engines import Engine
from cluster.errors import ClusterError
from cluster.layout import Layout
from cluster.progress import duration, heartbeat, say

ID_LABEL = "rampway.dev/image-id"


def load(layout: Layout, engine: Engine, images: Sequence[str]) -> None:
    """Imports every image that the node lacks or has an older build of."""
    if not layout.containerd_socket.exists():
        raise ClusterError(
            f"cluster {layout.name} has no node to load images into",
            f"python -m cluster up --name {layout.name}",
        )
    for image in images:
        wanted = engine.image_id(image)
        if wanted is None:
            raise ClusterError(
                f"image {image} is not in {engine.name}'s store",
                "python -m cluster images build, or check the name with `images list`",
            )
        if loaded_id(layout, image) == wanted:
            say(f"{image} is loaded already")
            continue
        began = time.monotonic()
        with heartbeat(f"loading {image}"), _one_at_a_time(layout):
            contents = engine.contents(image)
            if contents and sharing.can_share(contents, layout.state):
                sharing.share(_ctr(layout), image, contents)
            else:
                _pipe(engine.save_command(image), [*_ctr(layout), "images", "import", "-"])
            # The node knows an image by another digest than the builder does: note the builder's.
            run([*_ctr(layout), "images", "label", image, f"{ID_LABEL}={wanted}"], remedy=_REMEDY)
        say(f"loaded {image} in {duration(time.monotonic() - began)}")


def loaded_id(layout: Layout, image: str) -> str:
    """The builder's id of the image that the node has under this name, or nothing."""
    listing = run([*_ctr(layout), "images", "ls", f"name=={image}"], remedy=_REMEDY)
    for word in listing.replace(",", " ").split():
        if word.startswith(f"{ID_LABEL}="):
            return word.partition("=")[2]
    return ""


_REMEDY = "see containerd's log (python -m cluster status names it)"


def _ctr(layout: Layout) -> list[str]:
    return ["ctr", "-a", str(layout.containerd_socket), "-n", "k8s.io"]


@contextmanager
def _one_at_a_time(layout: Layout) -> Iterator[None]:
    with (layout.state / "load.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pipe(source: Sequence[str], sink: Sequence[str]) -> None:
    with tempfile.TemporaryFile() as errors:
        writer = subprocess.Popen(
            source, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        reader = subprocess.Popen(
            sink, stdin=writer.stdout, stdout=subprocess.DEVNULL, stderr=errors,
            start_new_session=True,
        )  # fmt: skip
        assert writer.stdout is not None
        writer.stdout.close()  # so that the writer ends when the reader does
        try:
            statuses = (reader.wait(), writer.wait())
        except BaseException:
            for process in (writer, reader):
                end_group(process)
            raise
        if any(statuses):
            errors.seek(0)
            raise ClusterError(
                f"{' '.join(source[:3])} | {' '.join(sink[:1])} failed: exit {statuses[::-1]}",
                "check free disk space with df, then load again",
                detail=last_lines(errors.read().decode(errors="replace")),
            )
