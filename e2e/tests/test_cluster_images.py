"""Image names, the order they are built in, wheels that are built once, the libstdc++ look-alike."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from cluster import images, lookalike, node, wheels
from cluster.errors import ClusterError
from cluster.images import Image


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("operator", "localhost/rampway/operator:dev"),
        ("simulated", "localhost/rampway/server:simulated"),
        ("demo-v2", "localhost/rampway/server:demo-v2"),
        ("operator-v12", "localhost/rampway/operator:dev-v12"),
        ("simulated-old-libstdcxx", "localhost/rampway/server:simulated-old-libstdcxx"),
    ],
)
def test_given_a_name_when_parsed_then_the_tag_is_the_one_the_charts_use(name: str, tag: str):
    assert images.parse(name).tag == tag


@pytest.mark.parametrize("name", ["", "server", "full-", "full-v", "full-v2-v3", "old-libstdcxx"])
def test_given_an_unknown_name_when_parsed_then_the_grammar_is_told(name: str):
    with pytest.raises(ClusterError, match="use operator, simulated, full, demo or all"):
        images.parse(name)


def test_given_a_variant_of_a_child_when_ordered_then_every_parent_comes_first_and_once():
    order = [image.tag.partition(":")[2] for image in images.in_order(["demo-v2", "demo", "full"])]
    assert order == ["full", "demo", "demo-v2"]


def test_given_all_when_ordered_then_every_plain_image_is_there_once():
    assert images.in_order(["all", "full"]) == [Image(plain) for plain in images.PLAIN]


@pytest.mark.parametrize("name", images.PLAIN)
def test_given_an_image_when_its_dockerfile_is_read_then_it_is_what_the_cluster_admits(name: str):
    folder = images.REPOSITORY / "images"
    text = (folder / f"{images.PLAIN[name].file}.Dockerfile").read_text()
    assert "ARG BASE_IMAGE=" in text
    assert f"LABEL {images.engines.LABEL}=" in text
    if not images.PLAIN[name].parent:
        stages = text.count("ENTRYPOINT")
        assert text.count("\nUSER 65532:65532\n") == text.count("\nENTRYPOINT [") == stages > 0


def repository(folder: Path) -> Path:
    package = folder / "operator/src/rampway_operator"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (folder / "operator/pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "rampway-operator"\nversion = "0.1.0"\nrequires-python = ">=3.11"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/rampway_operator"]\n'
    )
    return folder


def test_given_unchanged_sources_when_built_again_then_the_wheel_is_left_alone(tmp_path: Path):
    root = repository(tmp_path)
    wheels.build(root, ["rampway-operator"])
    (wheel,) = (root / "dist").glob("*.whl")
    first = wheel.stat().st_mtime_ns
    cache = root / "operator/src/rampway_operator/__pycache__"
    cache.mkdir()
    (cache / "x.pyc").write_bytes(b"x")
    wheels.build(root, ["rampway-operator"])
    assert wheel.stat().st_mtime_ns == first


def test_given_a_new_version_when_built_then_the_old_wheel_is_gone(tmp_path: Path):
    root = repository(tmp_path)
    wheels.build(root, ["rampway-operator"])
    project = root / "operator/pyproject.toml"
    project.write_text(project.read_text().replace("0.1.0", "0.2.0"))
    wheels.build(root, ["rampway-operator"])
    assert [file.name for file in (root / "dist").glob("*.whl")] == [
        "rampway_operator-0.2.0-py3-none-any.whl"
    ]


def test_given_a_broken_package_when_built_then_the_builder_is_quoted(tmp_path: Path):
    root = repository(tmp_path)
    (root / "operator/pyproject.toml").write_text("[project]\nname = 7\n")
    with pytest.raises(ClusterError, match="fix the package"):
        wheels.build(root, ["rampway-operator"])


@pytest.mark.skipif(not shutil.which("gcc") or not shutil.which("readelf"), reason="needs gcc")
def test_given_the_lookalike_when_its_versions_are_read_then_they_end_before_3_4_29(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = lookalike.build(images.REPOSITORY / "images" / images.OLD_LIBSTDCXX)
    argv = ["readelf", "--version-info", "--dynamic", str(folder / lookalike.LIBRARY)]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert "Name: GLIBCXX_3.4.28" in shown
    assert "GLIBCXX_3.4.29" not in shown
    assert "soname: [libstdc++.so.6]" in shown


def test_given_the_pause_program_when_archived_then_the_image_is_whole():
    with tarfile.open(fileobj=io.BytesIO(node.pause_archive(b"program"))) as archive:
        (entry,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(entry["Config"]))
        layer = archive.extractfile(entry["Layers"][0]).read()
    assert entry["RepoTags"] == [node.PAUSE_IMAGE]
    assert len(config["rootfs"]["diff_ids"]) == 1
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert files.getmember("pause").mode == 0o755
