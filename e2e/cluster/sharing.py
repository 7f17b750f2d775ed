"""Gives a node an image by hard links to the builder's layers: no copy, no archive, in seconds.

It knows nothing of builders: they say which folders hold the layers. What a container writes goes
to a layer of its own, so the shared files never change.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cluster.commands import run, succeeds
from cluster.engines import Contents, Layer

REMEDY = "see containerd's log (`python -m cluster status` names it) and free disk space"
ACTIVE = "rampway-load"


def share(ctr: Sequence[str], image: str, contents: Contents) -> None:
    """Makes the image's layers snapshots of the node where they are not yet, then names the image."""
    known = set(run([*ctr, "snapshots", "ls"], remedy=REMEDY).split())
    parent = ""
    for chain, layer in zip(chain_ids(contents.layers), contents.layers, strict=True):
        if chain not in known:
            _add_snapshot(ctr, layer, chain, parent)
        parent = chain
    # The archive names its layers but holds none: containerd unpacks only what it has no snapshot of.
    run([*ctr, "images", "import", "-"], stdin=archive(image, contents), remedy=REMEDY)
    for chain in chain_ids(contents.layers):
        if chain not in known:  # from now on the image holds it
            run([*ctr, "snapshots", "label", chain, "containerd.io/gc.root="], remedy=REMEDY)


def can_share(contents: Contents, state: Path) -> bool:
    """Whether all layers lie on the file system of the node's state."""
    device = state.stat().st_dev
    return all(
        layer.folder.is_dir() and layer.folder.stat().st_dev == device for layer in contents.layers
    )


def chain_ids(layers: Sequence[Layer]) -> Iterator[str]:
    """The OCI chain id of each layer upon those before it: containerd's snapshot names."""
    chain = ""
    for layer in layers:
        joined = f"{chain} {layer.diff_id}"
        chain = f"sha256:{hashlib.sha256(joined.encode()).hexdigest()}" if chain else layer.diff_id
        yield chain


def archive(image: str, contents: Contents) -> bytes:
    """An OCI archive of an image without its layers."""
    config = json.dumps(contents.config).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [
            {
                "mediaType": "application/vnd.oci.image.layer.v1.tar",
                "digest": layer.diff_id,
                "size": layer.size,
            }
            for layer in contents.layers
        ],
    }
    encoded = json.dumps(manifest).encode()
    entry = _descriptor(str(manifest["mediaType"]), encoded)
    entry["annotations"] = {"io.containerd.image.name": image}
    index = {"schemaVersion": 2, "manifests": [entry]}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        f"blobs/sha256/{hashlib.sha256(config).hexdigest()}": config,
        f"blobs/sha256/{hashlib.sha256(encoded).hexdigest()}": encoded,
        "index.json": json.dumps(index).encode(),
    }
    return tar_of(files)


def tar_of(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    """A tar archive of these files, without times, so that equal content gives equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            made.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _add_snapshot(ctr: Sequence[str], layer: Layer, chain: str, parent: str) -> None:
    succeeds([*ctr, "snapshots", "rm", ACTIVE])  # of a load that was interrupted
    prepare = [*ctr, "snapshots", "prepare", "--target", "/unused", ACTIVE]
    mount = run([*prepare, parent] if parent else prepare, remedy=REMEDY)
    folder = re.search(r"upperdir=([^,\s]+)", mount) or re.search(r"-t bind (\S+)", mount)
    assert folder, f"the overlayfs snapshotter mounts an upper folder: got {mount!r}"
    # Links files and symlinks, makes folders anew with owner, mode, times and overlay's marks.
    copy = ["cp", "--archive", "--link", f"{layer.folder}/.", f"{folder[1]}/"]
    run(copy, remedy=REMEDY, timeout_s=600)
    run([*ctr, "snapshots", "commit", chain, ACTIVE], remedy=REMEDY, timeout_s=600)
