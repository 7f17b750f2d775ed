"""The build: when it is done again, what it tells, and what it refuses to start."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cluster import cli, gobuild, prerequisites, versions
from cluster.errors import ClusterError
from cluster.gobuild import GoOutput
from cluster.versions import BINARIES, Binary


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Binary:
    shutil.copytree(versions.SOURCES, tmp_path / "go")
    monkeypatch.setattr(versions, "SOURCES", tmp_path / "go")
    return next(binary for binary in BINARIES if binary.name == "pause")


@pytest.mark.skipif(not prerequisites.has_static_libc(), reason="needs gcc and a static libc")
def test_given_an_empty_home_when_built_twice_then_the_second_time_nothing_is_made(
    home: Path, pause: Binary
):
    gobuild.build([pause])
    made = home / ".cache/rampway/cluster/bin/pause"
    first = made.stat()
    gobuild.build([pause])
    assert made.stat().st_mtime_ns == first.st_mtime_ns
    assert first.st_mode & 0o111


@pytest.mark.skipif(not prerequisites.has_static_libc(), reason="needs gcc and a static libc")
def test_given_a_built_program_when_its_source_or_version_changes_then_it_is_built_again(
    home: Path, pause: Binary
):
    gobuild.build([pause])
    assert gobuild.is_built(pause)
    assert not gobuild.is_built(replace(pause, version="2"))
    assert not gobuild.is_built(replace(pause, stamps=("x=y",)))
    (pause.folder / "go.sum").write_text("another\n")
    assert not gobuild.is_built(pause)


@pytest.mark.skipif(not prerequisites.has_static_libc(), reason="needs gcc and a static libc")
def test_given_a_source_with_a_fault_when_built_then_the_compiler_is_quoted_and_nothing_left(
    home: Path, pause: Binary
):
    (pause.folder / "pause.c").write_text("int main(void) { return undeclared_thing; }\n")
    with pytest.raises(ClusterError, match="undeclared_thing"):
        gobuild.build([pause])
    assert not gobuild.is_built(pause)
    assert {file.name for file in gobuild.bin_folder().iterdir()} <= {".lock", ".stamps"}


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.name)
def test_given_a_program_when_its_module_is_read_then_it_pins_the_version_that_is_stamped(
    binary: Binary,
):
    if binary.component == "pause":
        pytest.skip("is C")
    assert f" v{binary.version}" in (binary.folder / "go.mod").read_text()
    assert (binary.folder / "go.sum").exists()


def test_given_kubernetes_when_its_staging_modules_are_read_then_all_have_its_minor_version():
    minor = versions.KUBERNETES.partition(".")[2]
    lines = (versions.SOURCES / "kubernetes/go.mod").read_text().splitlines()
    replaced = [line for line in lines if line.strip().startswith("k8s.io/") and "=>" in line]
    assert len(replaced) > 20
    assert {line.split()[-1] for line in replaced} == {f"v0.{minor}"}


def test_given_go_output_when_read_then_downloads_and_packages_are_counted():
    output = GoOutput()
    for line in (
        "go: downloading k8s.io/api v0.37.2",
        "k8s.io/api/core/v1",
        "internal/abi",
    ):
        output.read(line)
    assert str(output) == "1 modules downloaded, 2 packages compiled"


def test_given_too_little_disk_when_checked_then_got_and_need_are_told(tmp_path: Path):
    with pytest.raises(ClusterError, match=r"GiB free at .*need 1000000 GiB to test"):
        prerequisites.require_disk(tmp_path / "not/there/yet", 1_000_000, "to test")


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("go1.25.1", "got go1.25.1, need 1.26"),
        ("devel +abc", "got devel"),
        ("", "got nothing, need 1.26"),
    ],
)
def test_given_an_unusable_go_when_checked_then_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, message: str
):
    fake = tmp_path / "go"
    fake.write_text(f"#!/bin/sh\necho '{output}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ClusterError) as caught:
        prerequisites.require_go((1, 26))
    assert message in caught.value.message
    assert "install Go 1.26 or newer" in caught.value.remedy


def test_given_no_go_when_checked_then_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"Go is not installed: need 1\.26"):
        prerequisites.require_go((1, 26))


def test_given_missing_programs_and_no_package_manager_when_ensured_then_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="need packages buildah"):
        prerequisites.ensure_programs(prerequisites.BUILDAH_PROGRAMS)


def test_given_a_home_that_is_no_folder_when_built_then_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert cli.main(["build"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {tmp_path / 'file'}")
    assert "HOME must be writable" in second
