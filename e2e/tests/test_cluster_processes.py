"""Daemons: started once, known by more than their number, and missed at once when they die."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import processes
from cluster.errors import ClusterError
from cluster.layout import Layout
from cluster.processes import Daemon

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not sys.platform.startswith("linux"), reason="needs root on Linux"
)


class Here(Layout):
    """A layout in a temporary folder and in the network namespace that the test itself runs in."""

    folder: Path

    @property
    def state(self) -> Path:
        return Here.folder

    @property
    def netns_path(self) -> Path:
        return Path("/proc/self/ns/net")


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    Here.folder = tmp_path
    here = Here("t")
    yield here
    processes.kill([pid_of(here, n) for n in processes.recorded(here) if processes.lives(here, n)])


def pid_of(layout: Layout, name: str) -> int:
    return json.loads(layout.pid_file(name).read_text())["pid"]


def test_given_a_running_daemon_when_ensured_again_then_it_is_left_alone(layout: Layout):
    daemon = Daemon("d", ("sleep", "60"))
    processes.ensure(layout, daemon)
    first = pid_of(layout, "d")
    processes.ensure(layout, daemon)
    assert pid_of(layout, "d") == first
    assert processes.lives(layout, "d")


def test_given_a_running_daemon_when_its_arguments_change_then_it_is_replaced(layout: Layout):
    processes.ensure(layout, Daemon("d", ("sleep", "60")))
    first = pid_of(layout, "d")
    processes.ensure(layout, Daemon("d", ("sleep", "61")))
    assert pid_of(layout, "d") != first
    assert not Path(f"/proc/{first}").exists()


def test_given_a_reused_process_number_when_asked_then_the_daemon_is_dead(layout: Layout):
    processes.ensure(layout, Daemon("d", ("sleep", "60")))
    record = json.loads(layout.pid_file("d").read_text())
    processes.kill([record["pid"]])
    stranger = {**record, "pid": os.getpid()}
    layout.pid_file("d").write_text(json.dumps(stranger))
    assert not processes.lives(layout, "d")


@pytest.mark.parametrize("content", ["", "{", "null", "[]", '{"pid": "x"}', "7"])
def test_given_a_damaged_record_when_asked_then_the_daemon_is_dead(layout: Layout, content: str):
    layout.pid_file("d").parent.mkdir(parents=True)
    layout.pid_file("d").write_text(content)
    assert not processes.lives(layout, "d")


def test_given_a_daemon_that_dies_when_waited_for_then_the_end_of_its_log_is_shown_at_once(
    layout: Layout,
):
    processes.ensure(layout, Daemon("d", ("sh", "-c", "echo address in use >&2; exit 1")))
    with pytest.raises(ClusterError, match="address in use") as caught:
        processes.wait_until(layout, "the thing", lambda: "not yet", ["d"], timeout_s=30)
    assert "d died while waiting for the thing" in caught.value.message


def test_given_a_daemon_that_never_serves_when_the_time_is_over_then_the_reason_is_told(
    layout: Layout,
):
    processes.ensure(layout, Daemon("d", ("sleep", "60")))
    with pytest.raises(ClusterError, match="not ready: waited 0 s, still loading"):
        processes.wait_until(layout, "the thing", lambda: "still loading", ["d"], timeout_s=0)


def test_given_a_daemon_when_the_terminal_sends_an_interrupt_then_it_is_not_reached(
    layout: Layout,
):
    processes.ensure(layout, Daemon("d", ("sleep", "60")))
    assert os.getpgid(pid_of(layout, "d")) != os.getpgrp()
    assert signal.getsignal(signal.SIGINT) is not None


def test_given_a_pager_on_a_log_when_strays_are_sought_then_it_is_not_one(
    layout: Layout, tmp_path: Path
):
    # Not in the cluster's namespace and none of its programs, though it names the cluster's folder.
    processes.ensure(layout, Daemon("d", ("sleep", "60")))
    pager = Daemon("pager", ("tail", "-f", f"{layout.state}/logs/d.log"))
    processes.ensure(layout, pager)

    class Elsewhere(Here):
        @property
        def netns_path(self) -> Path:
            return tmp_path / "no-namespace"

    assert pid_of(layout, "pager") not in processes.strays(Elsewhere("t"))
