"""Starts the cluster's daemons in its network namespace and knows which of them live.

It knows nothing of what the daemons do, and ends only what it started or finds to be theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cluster.commands import last_lines
from cluster.errors import ClusterError
from cluster.layout import Layout, bin_folder
from cluster.progress import say

SHOW_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """What was started: a process number names a process for good only with its start time."""

    pid: int
    started: int
    argv: tuple[str, ...]

    @property
    def lives(self) -> bool:
        """Whether this very process still runs."""
        return _state(self.pid) not in "ZX" and _start_time(self.pid) == self.started


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program of the cluster and its arguments."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def ensure(layout: Layout, daemon: Daemon) -> None:
    """Starts the daemon unless it already runs with exactly these arguments."""
    record = _record(layout, daemon.name)
    if record and record.lives:
        if record.argv == daemon.argv:
            return
        kill([record.pid])
    nsenter = shutil.which("nsenter")
    assert nsenter, "prerequisites installed it"
    layout.logs.mkdir(parents=True, exist_ok=True)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # nsenter, not `ip netns exec`, which would hide /sys/fs/cgroup. A session of its own, so that
    # Ctrl-C on this tool does not reach the cluster.
    pid = os.posix_spawn(
        nsenter,
        ["nsenter", f"--net={layout.netns_path}", "--", *daemon.argv],
        {**os.environ, **daemon.env},
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(layout.log(daemon.name)), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
    )
    file = layout.pid_file(daemon.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(Record(pid, _start_time(pid), daemon.argv))))


def lives(layout: Layout, name: str) -> bool:
    """Whether the daemon that was started under this name still runs (not merely its number)."""
    record = _record(layout, name)
    return record is not None and record.lives


def recorded(layout: Layout) -> list[str]:
    """The names of all daemons ever started for this cluster."""
    return sorted(file.stem for file in layout.pid_file("x").parent.glob("*.json"))


def wait_until(
    layout: Layout,
    what: str,
    missing: Callable[[], str],
    needs: Sequence[str],
    timeout_s: float = 90,
) -> None:
    """Returns when `missing()` is empty; fails at once when a daemon that it needs has died."""
    began = time.monotonic()
    shown = 0.0
    while reason := missing():
        waited = time.monotonic() - began
        for name in needs:
            if not lives(layout, name):
                raise _gave_up(layout, f"{name} died while waiting for {what}", name)
        if waited > timeout_s:
            raise _gave_up(
                layout, f"{what} is not ready: waited {waited:.0f} s, {reason}", needs[-1]
            )
        if waited - shown >= SHOW_WAIT_S:
            shown = waited
            say(f"  ... waiting for {what}: {waited:.0f} s, {reason}")
        time.sleep(0.1)


def strays(layout: Layout) -> list[int]:
    """Every process of this cluster, also those whose record is lost.

    A process is the cluster's when it runs in its network namespace, or is one of its programs
    with the cluster's folders among its arguments. A pager on a log file is neither.
    """
    netns = _inode(layout.netns_path)
    folders = (f"{layout.state}/", f"{layout.sockets}/")
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            in_netns = netns is not None and (folder / "ns/net").stat().st_ino == netns
            if in_netns or _is_ours(folder, folders):
                found.append(int(folder.name))
    return found


def kubelets() -> list[int]:
    """All kubelets on the machine, also those of other clusters and of the machine itself."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "exe").readlink().name == "kubelet":
                found.append(int(folder.name))
    return found


def kill(pids: Sequence[int], wait_s: float = 10) -> None:
    """Ends processes for good and waits until they are gone: nothing of theirs is kept."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    while any(_state(pid) not in "ZX" for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in pids:
        with suppress(ChildProcessError):  # ours only when this same process started it
            os.waitpid(pid, os.WNOHANG)


def _is_ours(folder: Path, folders: tuple[str, ...]) -> bool:
    program = Path(str((folder / "exe").readlink()).removesuffix(" (deleted)"))
    known = program.parent == bin_folder() or program.name.startswith(("containerd", "kube"))
    known = known or program.name in {"etcd", "coredns"}
    words = (folder / "cmdline").read_bytes().decode(errors="replace")
    return known and any(name in words for name in folders)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _gave_up(layout: Layout, message: str, name: str) -> ClusterError:
    log = layout.log(name)
    lines = last_lines(log.read_text(errors="replace")) if log.exists() else ""
    return ClusterError(
        message,
        f"read the lines above (end of {name}'s log; all logs are kept in {layout.failed_logs})",
        detail=lines,
    )


def _record(layout: Layout, name: str) -> Record | None:
    try:
        record = json.loads(layout.pid_file(name).read_text())
        return Record(record["pid"], record["started"], tuple(record["argv"]))
    except (OSError, ValueError, KeyError, TypeError):  # absent, or cut short by a crash
        return None


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text[text.rindex(")") + 2 :].split()


def _state(pid: int) -> str:
    """One letter; X when there is no such process."""
    fields = _stat(pid)
    return fields[0] if fields else "X"


def _start_time(pid: int) -> int:
    """Clock ticks after boot; -1 when there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else -1
