"""Brings a cluster up, repairs or rebuilds it, and takes it down.

It knows the order and what each step waits for; what each daemon needs is in its own module.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from types import FrameType

from cluster import (
    api,
    cgroups,
    controlplane,
    dns,
    gateway,
    network,
    node,
    pki,
    processes,
    teardown,
)
from cluster.errors import ClusterError
from cluster.layout import Layout
from cluster.progress import heartbeat, say

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
NODE = ("containerd", "kube-scheduler", "kubelet", "kube-proxy", "coredns")
GATEWAY = ("traefik",)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a cluster was brought up with; kept with it, so that `up` again needs no flags."""

    index: int = 0
    node: bool = True
    audit: bool = False
    gateway: bool = False

    def with_more(self, asked: Settings) -> Settings:
        """What runs stays, what is asked for is added."""
        return Settings(
            self.index,
            self.node or asked.node,
            self.audit or asked.audit,
            self.gateway or asked.gateway,
        )


def settings_of(layout: Layout) -> Settings | None:
    """What the cluster of this name was brought up with, or None when there is none."""
    try:
        return Settings(**json.loads((layout.state / "settings.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def up(layout: Layout, asked: Settings) -> None:
    """Returns when the cluster serves. Nothing is left behind when it cannot, or on Ctrl-C."""
    with _locked(layout), _terminate_as_interrupt():
        known = settings_of(layout)
        if known and known.index != layout.index:
            raise ClusterError(
                f"cluster {layout.name} has index {known.index}: got --index {layout.index}",
                f"leave --index out, choose another --name, or take {layout.name} down first",
            )
        settings = known.with_more(asked) if known else asked
        if known == settings and not missing(layout, settings):
            say(f"cluster {layout.name} is up already")
            return
        if known:
            try:
                say(f"repairing cluster {layout.name}: {missing(layout, settings) or 'more asked'}")
                _start(layout, settings)
            except ClusterError as error:
                say(f"repair failed ({error.message}); rebuilding it from nothing")
            else:
                return
        teardown.tear_down(layout)
        _start_or_remove(layout, settings)


def down(layout: Layout) -> None:
    """Removes everything of the cluster; fine when there is nothing."""
    with _locked(layout):
        teardown.tear_down(layout)
        layout.lock.unlink(missing_ok=True)
    with suppress(OSError):  # other clusters' locks
        layout.lock.parent.rmdir()


def missing(layout: Layout, settings: Settings) -> str:
    """The first thing that keeps the cluster from serving; empty when it is healthy."""
    gateways = GATEWAY if settings.gateway else ()
    for name in CONTROL_PLANE + (NODE if settings.node else ()) + gateways:
        if not processes.lives(layout, name):
            return f"{name} does not run"
    checks = [api.control_plane_missing]
    if settings.node:
        checks += [api.node_missing, api.dns_missing]
    if settings.gateway:
        checks.append(gateway.missing)
    return next((reason for check in checks if (reason := check(layout))), "")


def _start_or_remove(layout: Layout, settings: Settings) -> None:
    try:
        _start(layout, settings)
    except BaseException as error:
        teardown.keep_logs(layout)
        say(f"start did not finish ({type(error).__name__}); removing what was started")
        teardown.tear_down(layout)
        raise


def _start(layout: Layout, settings: Settings) -> None:
    layout.state.mkdir(parents=True, exist_ok=True, mode=0o711)
    if network.ensure(layout):
        # Whatever still runs does so in a namespace that nothing leads to any more.
        processes.kill(processes.strays(layout))
    pki.ensure(layout)
    (layout.state / "settings.json").write_text(json.dumps(asdict(settings)))
    with heartbeat("starting the control plane", expected_s=6):
        _start_control_plane(layout, settings)
    if settings.node:
        with heartbeat("starting the node", expected_s=6):
            _start_node(layout)
    if settings.gateway:
        with heartbeat("starting the gateway", expected_s=3):
            gateway.apply(layout)
            processes.ensure(layout, gateway.traefik(layout))
            _wait(layout, "the gateway", gateway.missing, ("kube-apiserver", "traefik"))
    # Last: the controllers need some seconds of their own.
    _wait(layout, "the controllers", api.control_plane_missing, CONTROL_PLANE)
    say(f"cluster {layout.name} is up: KUBECONFIG={layout.kubeconfig()}")


def _start_control_plane(layout: Layout, settings: Settings) -> None:
    controlplane.write_files(layout, audit=settings.audit)
    processes.ensure(layout, controlplane.etcd(layout))
    processes.ensure(layout, controlplane.api_server(layout, audit=settings.audit))
    # The controllers give up at once when the roles that let them read are not there yet.
    _wait(layout, "the API server", api.server_missing, ("etcd", "kube-apiserver"))
    processes.ensure(layout, controlplane.controller_manager(layout))


def _start_node(layout: Layout) -> None:
    cgroups.ensure(layout)
    node.write_files(layout)
    dns.write_files(layout)
    processes.ensure(layout, node.containerd(layout))
    _wait(layout, "containerd", node.containerd_missing, ("containerd",))
    node.ensure_pause_image(layout)
    for daemon in (
        controlplane.scheduler(layout), node.kubelet(layout), node.kube_proxy(layout),
        dns.coredns(layout),
    ):  # fmt: skip
        processes.ensure(layout, daemon)
    dns.apply(layout)
    _wait(layout, "the node", api.node_missing, (*CONTROL_PLANE, "containerd", "kubelet"))
    _wait(layout, "cluster DNS", api.dns_missing, (*CONTROL_PLANE, "kube-proxy", "coredns"))


def _wait(
    layout: Layout, what: str, check: Callable[[Layout], str], needs: tuple[str, ...]
) -> None:
    processes.wait_until(layout, what, lambda: check(layout), needs)


@contextmanager
def _locked(layout: Layout) -> Iterator[None]:
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with heartbeat(f"waiting for another command on cluster {layout.name}"):
                fcntl.flock(file, fcntl.LOCK_EX)
        if _is_current(file.fileno(), layout):
            yield
            return
    # The command that held the lock was a `down`, which deleted the file: take the next one.
    with _locked(layout):
        yield


def _is_current(descriptor: int, layout: Layout) -> bool:
    try:
        return os.fstat(descriptor).st_ino == layout.lock.stat().st_ino
    except FileNotFoundError:
        return False


@contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM and a closed terminal clean up as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
