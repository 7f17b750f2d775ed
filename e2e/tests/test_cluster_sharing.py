"""Images shared by hard links: the names and records that containerd must accept."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from cluster import sharing
from cluster.engines import Contents, Layer


def layer(text: str, folder: Path = Path("/nowhere")) -> Layer:
    return Layer(f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", folder, len(text))


def test_given_layers_when_chained_then_each_name_depends_on_all_below():
    a, b, c = layer("a"), layer("b"), layer("c")
    chain = list(sharing.chain_ids([a, b, c]))
    second = hashlib.sha256(f"{a.diff_id} {b.diff_id}".encode()).hexdigest()
    assert chain[0] == a.diff_id
    assert chain[1] == f"sha256:{second}"
    assert list(sharing.chain_ids([b, a, c]))[2] != chain[2]
    assert list(sharing.chain_ids([])) == []


def test_given_contents_when_archived_then_every_digest_in_it_leads_to_its_content():
    config = {"rootfs": {"type": "layers", "diff_ids": [layer("a").diff_id]}}
    made = sharing.archive("localhost/x:1", Contents(config, (layer("a"),)))
    with tarfile.open(fileobj=io.BytesIO(made)) as files:

        def read(name: str) -> bytes:
            return files.extractfile(name).read()

        (entry,) = json.loads(read("index.json"))["manifests"]
        manifest = read(f"blobs/sha256/{entry['digest'].removeprefix('sha256:')}")
        assert hashlib.sha256(manifest).hexdigest() == entry["digest"].removeprefix("sha256:")
        assert entry["size"] == len(manifest)
        described = json.loads(manifest)["config"]
        stored = read(f"blobs/sha256/{described['digest'].removeprefix('sha256:')}")
    assert json.loads(stored) == config
    assert described["size"] == len(stored)
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:1"


def test_given_equal_contents_when_archived_twice_then_the_bytes_are_equal():
    contents = Contents({"os": "linux"}, (layer("a"), layer("b")))
    assert sharing.archive("x:1", contents) == sharing.archive("x:1", contents)


def test_given_a_layer_elsewhere_or_gone_when_asked_then_it_cannot_be_shared(tmp_path: Path):
    (tmp_path / "layer").mkdir()
    here, gone = layer("a", tmp_path / "layer"), layer("b", tmp_path / "gone")
    elsewhere = layer("c", Path("/proc"))
    assert sharing.can_share(Contents({}, (here,)), tmp_path)
    assert not sharing.can_share(Contents({}, (here, gone)), tmp_path)
    assert not sharing.can_share(Contents({}, (here, elsewhere)), tmp_path)
