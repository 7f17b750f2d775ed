"""Runs kubectl and helm against one cluster; raises with the command's own words when one fails.

It does not know what the objects mean.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

__all__ = ["CommandFailed", "Kube", "Watched", "wait_until"]

Found = TypeVar("Found")

REPOSITORY = Path(__file__).resolve().parents[2]


class CommandFailed(Exception):
    """A command ended with an error; the message holds the command and its last words."""


class Watched:
    """The versions of the watched objects in the order in which the API server sent them."""

    def __init__(self) -> None:
        self._versions: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.ended = False
        """Whether all that kubectl sent was taken and no more will come."""

    def get(self, timeout: float) -> dict[str, Any] | None:
        """Return the next version; None after `timeout` seconds, or when the watch has ended."""
        try:
            found = self._versions.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return None
        self.ended = found is None
        return found

    def drain(self) -> Iterator[dict[str, Any]]:
        """Yield what has come and was not taken yet, without waiting."""
        while found := self.get(0):
            yield found

    def read(self, stream: TextIO) -> None:
        """Split kubectl's concatenated JSON documents; a document ends at a line that is `}`."""
        lines: list[str] = []
        for line in stream:
            lines.append(line)
            if line == "}\n":
                self._versions.put(json.loads("".join(lines)))
                lines.clear()
        self._versions.put(None)


@dataclass(frozen=True, slots=True)
class Kube:
    """One cluster, by its kubeconfig, and the namespace that commands default to."""

    kubeconfig: str
    namespace: str

    @classmethod
    def local(cls, exports: str, namespace: str) -> Kube:
        """Return the local cluster from the shell lines that `cluster env` prints."""
        words = [word for line in exports.splitlines() for word in shlex.split(line)]
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        tools = pairs["PATH"].split(":")[0]
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        return cls(pairs["KUBECONFIG"], namespace)

    def run(self, *command: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Return the standard output of a command; raises CommandFailed."""
        environment = os.environ | {"KUBECONFIG": self.kubeconfig}
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            words = (done.stderr or done.stdout).strip()
            raise CommandFailed(
                f"{' '.join(command)}: exit status {done.returncode}: {words[-2000:]}"
            )
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Return what kubectl prints, in this namespace."""
        return self.run("kubectl", "-n", self.namespace, *arguments, stdin=stdin, timeout=timeout)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind that match a label selector."""
        listed = json.loads(self.kubectl("get", kind, "-l", selector, "-o", "json"))
        items: list[dict[str, Any]] = listed["items"]
        return items

    @contextlib.contextmanager
    def watch(self, kind: str, *which: str) -> Iterator[Watched]:
        """Follow objects (a name, or -l and a selector) by one kubectl process while the context lasts."""
        command = ["kubectl", "-n", self.namespace, "get", kind, *which, "-w", "-o", "json"]
        environment = os.environ | {"KUBECONFIG": self.kubeconfig}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as follower:
            assert follower.stdout is not None
            watched = Watched()
            reader = threading.Thread(target=watched.read, args=(follower.stdout,), daemon=True)
            reader.start()
            try:
                yield watched
            finally:
                follower.terminate()
                reader.join(10)

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply manifests from the client's side, as users do."""
        documents = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(documents))

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        """Merge-patch one object."""
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(body))

    def create_namespace(self) -> None:
        """Create the namespace with Pod Security `restricted` enforced; an existing one is kept."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def delete_namespace(self, timeout: float = 120) -> None:
        """Delete the namespace and wait until it is gone."""
        self.run(
            "kubectl",
            "delete",
            "namespace",
            self.namespace,
            "--ignore-not-found",
            f"--timeout={timeout:.0f}s",
            timeout=timeout + 10,
        )

    def apply_crds(self) -> None:
        """Apply this repository's CRDs and wait until the API server serves them.

        `kubectl wait` ends with an error when it meets a CRD that has no conditions yet.
        """
        crds = ("-f", str(REPOSITORY / "crds"))
        self.kubectl("apply", "--server-side", "--force-conflicts", *crds)

        def established() -> bool:
            listed = json.loads(self.kubectl("get", *crds, "-o", "json"))
            return all(
                any(
                    condition["type"] == "Established" and condition["status"] == "True"
                    for condition in crd.get("status", {}).get("conditions") or ()
                )
                for crd in listed.get("items", [listed])
            )

        wait_until("the CRDs are established", established, 60)

    def install_operator(self, image: str, *settings: str) -> None:
        """`helm install` the chart into this namespace and wait until the operator is ready."""
        self.apply_crds()  # Helm never upgrades the CRDs of a chart
        repository, _, tag = image.rpartition(":")
        chosen = (f"image.repository={repository}", f"image.tag={tag}", *settings)
        flags = [flag for setting in chosen for flag in ("--set", setting)]
        self.run(
            "helm",
            "upgrade",
            "--install",
            "rampway",
            str(REPOSITORY / "charts" / "rampway"),
            "--namespace",
            self.namespace,
            *flags,
            "--wait",
            "--timeout",
            "120s",
            timeout=150,
        )


def wait_until(
    what: str, check: Callable[[], Found | None], timeout: float, every: float = 0.5
) -> Found:
    """Return the first value of `check` that is true; raises TimeoutError naming `what`."""
    end = time.monotonic() + timeout
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {timeout:.0f} s")
        time.sleep(every)
