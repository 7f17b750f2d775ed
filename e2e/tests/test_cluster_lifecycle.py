"""A cluster comes up, survives what happens to it, and leaves nothing behind.

Each test runs a cluster of its own, name t, index 5, beside any that is there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import cli, gobuild, lifecycle, network, processes, teardown
from cluster.errors import ClusterError
from cluster.layout import Layout
from cluster.lifecycle import Settings
from cluster.versions import BINARIES

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        not all(gobuild.is_built(binary) for binary in BINARIES),
        reason="needs the built programs (python -m cluster build)",
    ),
]
CONTROL_PLANE = Settings(index=5, node=False)
COMMAND = [sys.executable, "-m", "cluster"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[1])}


@pytest.fixture
def layout() -> Iterator[Layout]:
    layout = Layout("t", 5)
    lifecycle.down(layout)
    yield layout
    lifecycle.down(layout)


def test_given_a_control_plane_when_down_then_no_trace_is_left(layout: Layout):
    lifecycle.up(layout, CONTROL_PLANE)
    assert teardown.leftovers(layout)
    lifecycle.down(layout)
    assert teardown.leftovers(layout) == []
    assert not layout.lock.exists()


def test_given_a_healthy_cluster_when_up_again_then_nothing_is_restarted(layout: Layout):
    lifecycle.up(layout, CONTROL_PLANE)
    before = processes.strays(layout)
    lifecycle.up(layout, Settings(index=5, node=False))
    assert processes.strays(layout) == before


@pytest.mark.parametrize("daemon", lifecycle.CONTROL_PLANE)
def test_given_a_dead_daemon_when_up_again_then_it_is_repaired(layout: Layout, daemon: str):
    lifecycle.up(layout, CONTROL_PLANE)
    record = processes._record(layout, daemon)
    processes.kill([record.pid])
    assert lifecycle.missing(layout, CONTROL_PLANE) == f"{daemon} does not run"
    lifecycle.up(layout, CONTROL_PLANE)
    assert lifecycle.missing(layout, CONTROL_PLANE) == ""


def test_given_a_cluster_whose_data_is_damaged_when_up_again_then_it_is_rebuilt(layout: Layout):
    lifecycle.up(layout, CONTROL_PLANE)
    processes.kill(processes.strays(layout))
    shutil.rmtree(layout.state / "etcd" / "member" / "snap")
    lifecycle.up(layout, CONTROL_PLANE)
    assert lifecycle.missing(layout, CONTROL_PLANE) == ""


def test_given_a_lost_network_when_up_again_then_it_is_repaired(layout: Layout):
    lifecycle.up(layout, CONTROL_PLANE)
    network.remove(layout)
    lifecycle.up(layout, CONTROL_PLANE)
    assert lifecycle.missing(layout, CONTROL_PLANE) == ""


def test_given_lost_records_when_down_then_the_processes_are_found_all_the_same(layout: Layout):
    lifecycle.up(layout, CONTROL_PLANE)
    shutil.rmtree(layout.state)
    assert processes.strays(layout)
    lifecycle.down(layout)
    assert teardown.leftovers(layout) == []


def test_given_the_subnets_of_a_running_cluster_when_up_then_another_index_is_asked_for(
    layout: Layout,
):
    lifecycle.up(layout, CONTROL_PLANE)
    other = Layout("u", 5)
    with pytest.raises(ClusterError, match="choose another --index"):
        lifecycle.up(other, CONTROL_PLANE)
    assert teardown.leftovers(other) == []
    with pytest.raises(ClusterError, match="has index 5: got --index 4"):
        lifecycle.up(Layout("t", 4), CONTROL_PLANE)


@pytest.fixture
def heard_signals() -> Iterator[None]:
    """Children hear SIGINT, also when the tests run behind a shell's `&`, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_given_a_start_that_is_interrupted_when_it_ends_then_nothing_is_left(
    layout: Layout, sign: signal.Signals
):
    argv = [*COMMAND, "up", "--name", "t", "--index", "5"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT) as up:
        shown = ""
        for line in up.stderr:
            shown += line
            if "starting the node" in line:
                up.send_signal(sign)
        assert up.wait() == 130, shown
    assert teardown.leftovers(layout) == []


def test_given_no_cluster_when_asked_for_anything_then_one_line_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], layout: Layout
):
    for command in ("status", "env"):
        assert cli.main([command, "--name", "t"]) == 1
    assert cli.main(["load", "--name", "t", "localhost/x:1"]) == 1
    shown = capsys.readouterr().err.splitlines()
    assert (
        shown
        == [
            "error: cluster t is not up",
            "  remedy: python -m cluster up --name t",
        ]
        * 3
    )
