"""Runs check_env in an image of its own: a root folder in a mount namespace, made of this machine's files.

Nothing of Rampway is in the image but the archive, as in a pod. Needs `unshare`, and root or user namespaces.
"""

from __future__ import annotations

import functools
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from rampway_operator.cluster.check_env_payload import pack_check_env

Content = str | Callable[[Path], object]
"""A text, or what makes the file at the path it is given."""

PYTHON = str(Path(sys.base_prefix, "bin", "python3"))
_SHARED = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
_PLAIN = {
    "PATH": "/usr/bin:/bin",
    "PYTHONPATH": "/site",
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Environment:
    """An image on a node. What is said twice adds up, see `+`."""

    wanted: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Content] = field(default_factory=dict)
    over: Mapping[str, Content] = field(default_factory=dict)
    """Files that take the place of this machine's own."""
    environ: Mapping[str, str] = field(default_factory=dict)
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    """Mount options by folder."""
    setup: str = ""
    """Shell in the root folder before the image is entered."""
    arguments: Sequence[str] = ()
    user: str = ""
    python: str = ""
    """The image's python3; default this machine's own."""
    read_only: bool = False

    def __add__(self, other: Environment) -> Environment:
        values = {}
        for one in fields(self):
            left, right = getattr(self, one.name), getattr(other, one.name)
            values[one.name] = {**left, **right} if isinstance(left, Mapping) else right or left
            if one.name == "setup":
                values[one.name] = left + right
        return Environment(**values)


@dataclass(frozen=True)
class Result:
    """What a kubelet sees of a run."""

    code: int
    message: dict[str, Any]
    report: dict[str, Any]
    seconds: float
    stderr: str


@functools.cache
def _unshare() -> tuple[str, ...]:
    if shutil.which("unshare") is None or shutil.which("gcc") is None:
        return ()
    root = ("unshare", "--mount", "--propagation", "private")
    user = ("unshare", "--user", "--map-root-user", "--mount")
    for command in (root, user):
        mount = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            return command
    return ()


needs_images = pytest.mark.skipif(
    not _unshare(), reason="needs gcc, and mounts in a namespace of its own (root, or user namespaces)"
)  # fmt: skip


def run(environment: Environment, tree: Path, *, timeout: str) -> Result:
    """Make the image below `tree`, run check_env in it and return what it left."""
    script = _build(environment, tree)
    wanted = json.dumps(environment.wanted)
    python = environment.python or PYTHON
    command = [python, "/rampway/check_env.pyz", "--json", "--requirements", wanted]
    command += ["--timeout", timeout, *environment.arguments]
    variables = [f"{key}={value}" for key, value in {**_PLAIN, **environment.environ}.items()]
    user = [f"--userspec={environment.user}"] if environment.user else []
    inside = ["chroot", *user, str(tree), "/usr/bin/env", "-i", *variables, *command]
    script += f"exec {shlex.join(inside)}\n"
    began = time.monotonic()
    done = subprocess.run(
        [*_unshare(), "sh", "-ec", script], capture_output=True, text=True, check=False, timeout=120
    )
    seconds = time.monotonic() - began
    message = (tree / "dev" / "termination-log").read_text(encoding="utf-8")
    return Result(
        done.returncode,
        json.loads(message) if message else {},
        json.loads(done.stdout) if done.stdout.startswith("{") else {},
        seconds,
        done.stderr,
    )


def _build(environment: Environment, tree: Path) -> str:
    """Make the files, and return the shell that mounts the rest."""
    for folder in ("proc", "dev/shm", "etc", "tmp", "site", "rampway", "mnt"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "tmp").chmod(0o1777)
    (tree / "rampway" / "check_env.pyz").write_bytes(pack_check_env())
    (tree / "dev" / "termination-log").touch(mode=0o666)
    (tree / "dev" / "termination-log").chmod(0o666)
    (tree / "dev" / "null").touch()
    cache = Path("/etc/ld.so.cache")
    if cache.exists():
        shutil.copy(cache, tree / "etc")
    lines = [f"mount --bind {tree} {tree}", f"cd {tree}", "mount --bind /dev/null dev/null"]
    lines += ["mount --bind dev/termination-log dev/termination-log"]  # writable in any image
    lines += ["mount -t proc proc proc 2>/dev/null || mount --rbind /proc proc"]
    prefix = str(Path(environment.python or PYTHON).resolve().parent.parent)
    for folder in [*_SHARED, *([] if prefix.startswith("/usr") else [prefix])]:
        inside = tree / folder[1:]
        if Path(folder).is_symlink() and not inside.is_symlink():
            inside.symlink_to(Path(folder).readlink())
        elif Path(folder).is_dir():
            inside.mkdir(parents=True, exist_ok=True)
            lines.append(f"mount --rbind {folder} .{folder}")
    for folder, options in {"/dev/shm": "size=64m", **environment.tmpfs}.items():
        (tree / folder[1:]).mkdir(parents=True, exist_ok=True)
        lines.append(f"mount -t tmpfs -o {options} tmpfs .{folder}")
    for path, content in environment.files.items():
        _place(tree / path[1:], content)
    for number, (path, content) in enumerate(environment.over.items()):
        _place(tree / "mnt" / str(number), content)
        lines.append(f"mount --bind mnt/{number} .{Path(path).resolve()}")
    lines += [environment.setup or ":"]
    if environment.read_only:
        lines.append(f"mount -o remount,bind,ro {tree}")
    return "\n".join(lines) + "\n"


def _place(file: Path, content: Content) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        file.write_text(content, encoding="utf-8")
    else:
        content(file)
