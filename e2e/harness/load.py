"""Runs the load generator inside the cluster, as one pod beside the service, and reads its report.

It does not know how load is made; `loadgen` does.
"""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.kube import Kube, wait_until

__all__ = ["LoadPod", "loadgen_archive"]

SOURCE = Path(__file__).resolve().parents[1] / "loadgen"
FIXED_DATE = (2020, 1, 1, 0, 0, 0)


def loadgen_archive() -> bytes:
    """Return the load generator as a zipapp: equal sources give equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(SOURCE.glob("*.py")):
            archive.writestr(zipfile.ZipInfo(f"loadgen/{file.name}", FIXED_DATE), file.read_bytes())
        start = "import sys\nfrom loadgen.__main__ import main\nsys.exit(main())\n"
        archive.writestr(zipfile.ZipInfo("__main__.py", FIXED_DATE), start)
    return packed.getvalue()


@dataclass(slots=True)
class LoadPod:
    """One load generator pod; `progress` grows while it runs."""

    kube: Kube
    image: str
    url: str
    arguments: tuple[str, ...]
    name: str = "loadgen"
    progress: list[dict[str, Any]] = field(default_factory=list)

    def start(self, on_progress: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Create the pod and wait until it runs; a thread follows its lines."""
        self.kube.kubectl("delete", "pod", self.name, "--ignore-not-found", "--now")
        archive = base64.b64encode(loadgen_archive()).decode()
        self.kube.apply(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": self.name},
                "binaryData": {"loadgen.pyz": archive},
            },
            self._pod(),
        )
        wait_until("the load generator pod", self._running, timeout=90)
        threading.Thread(target=self._follow, args=(on_progress,), daemon=True).start()

    def stop(self) -> dict[str, Any]:
        """Stop sending, wait for what is in flight and return the report."""
        stop = "import os, signal; os.kill(1, signal.SIGTERM)"
        self.kube.kubectl("exec", self.name, "--", "python3", "-c", stop)
        return self.ended(timeout=330)

    def ended(self, timeout: float) -> dict[str, Any]:
        """Wait for a run with a duration to end and return the report."""
        wait_until(
            "the load generator's end", lambda: self._phase() in ("Succeeded", "Failed"), timeout
        )
        lines = self.kube.kubectl("logs", self.name).strip().splitlines()
        report: dict[str, Any] = json.loads(lines[-1])
        return report

    def _phase(self) -> str:
        return str(self.kube.get("pod", self.name)["status"]["phase"])

    def _running(self) -> bool:
        phase = self._phase()
        if phase == "Failed":
            raise RuntimeError(
                f"the load generator failed: {self.kube.kubectl('logs', self.name)[-2000:]}"
            )
        return phase == "Running"

    def _follow(self, on_progress: Callable[[dict[str, Any]], None] | None) -> None:
        with subprocess.Popen(
            ["kubectl", "-n", self.kube.namespace, "logs", "-f", self.name],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"KUBECONFIG": self.kube.kubeconfig},
        ) as follower:
            assert follower.stdout is not None
            for line in follower.stdout:
                if line.startswith("{"):
                    event = json.loads(line)
                    self.progress.append(event)
                    if on_progress:
                        on_progress(event)

    def _pod(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "labels": {"app.kubernetes.io/name": "loadgen"}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": False,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [
                    {
                        "name": "loadgen",
                        "image": self.image,
                        "imagePullPolicy": "IfNotPresent",
                        "command": [
                            "python3",
                            "/loadgen/loadgen.pyz",
                            "--url",
                            self.url,
                            *self.arguments,
                        ],
                        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                        # Without a request it would get a thousandth of a busy node's time and
                        # measure its own starvation.
                        "resources": {"requests": {"cpu": "150m", "memory": "64Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": False,
                            "readOnlyRootFilesystem": True,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [{"name": "loadgen", "mountPath": "/loadgen"}],
                    }
                ],
                "volumes": [{"name": "loadgen", "configMap": {"name": self.name}}],
            },
        }
