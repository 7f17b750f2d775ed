"""Pods run, find each other by name, and are reached from the host as the load generator does it."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import (
    api,
    base_image,
    engines,
    gobuild,
    lifecycle,
    loading,
    processes,
    sharing,
    teardown,
)
from cluster.layout import Layout, bin_folder
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
IMAGE = base_image.LOCAL
LAYOUT = Layout("n", 4)
SERVE = ["python3", "-m", "http.server", "8080", "--directory", "/etc"]
WEB = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532},
        "containers": [
            {
                "name": "web",
                "image": IMAGE,
                "command": SERVE,
                "securityContext": {"readOnlyRootFilesystem": True},
                "readinessProbe": {
                    "httpGet": {"path": "/hostname", "port": 8080},
                    "periodSeconds": 1,
                },
            }
        ],
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    # Not `web`: that is the pod's own host name, which its /etc/hosts answers.
    "metadata": {"name": "site"},
    "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]},
}


def kubectl(*argv: str, stdin: str | None = None) -> str:
    command = [bin_folder() / "kubectl", f"--kubeconfig={LAYOUT.kubeconfig()}", *argv]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fetch(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/hostname", timeout=2) as answer:
        return answer.read().decode().strip()


def eventually(ask: Callable[[], str], timeout_s: float = 20) -> str:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@pytest.fixture(scope="module")
def engine() -> engines.Engine:
    engine = engines.choose()
    if engine.image_id(IMAGE) is None:
        pytest.skip(f"needs the image {IMAGE} (python -m cluster images build operator)")
    return engine


@pytest.fixture(scope="module")
def web(engine: engines.Engine) -> Iterator[str]:
    """The address of a pod that serves its own name."""
    lifecycle.down(LAYOUT)
    try:
        lifecycle.up(LAYOUT, Settings(index=4, audit=True))
        loading.load(LAYOUT, engine, [IMAGE])
        listed = {"apiVersion": "v1", "kind": "List", "items": [WEB, SERVICE]}
        kubectl("apply", "-f", "-", stdin=json.dumps(listed))
        kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        yield kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
    finally:
        lifecycle.down(LAYOUT)
    assert teardown.leftovers(LAYOUT) == []


def test_given_a_pod_when_asked_by_its_address_from_the_host_then_it_answers(web: str):
    assert fetch(f"{web}:8080") == "web"


def test_given_a_service_when_asked_by_its_address_from_the_host_then_the_pod_answers(web: str):
    address = kubectl("get", "service", "site", "-o", "jsonpath={.spec.clusterIP}")
    assert eventually(lambda: fetch(address)) == "web"


def test_given_a_service_when_its_name_is_asked_for_then_dns_knows_its_address(web: str):
    address = kubectl("get", "service", "site", "-o", "jsonpath={.spec.clusterIP}")
    name = "site.default.svc.cluster.local"
    assert eventually(lambda: "".join(api.resolve(LAYOUT.dns_ip, name))) == address


def test_given_a_pod_when_it_asks_its_own_service_by_short_name_then_it_is_answered(web: str):
    code = (
        "import urllib.request as u, ssl;"
        "print(u.urlopen('http://site/hostname', timeout=5).read().decode().strip());"
        "print(ssl.get_server_certificate(('kubernetes.default', 443))[:27])"
    )
    shown = kubectl("exec", "web", "--", "python3", "-c", code).split("\n")
    assert shown[:2] == ["web", "-----BEGIN CERTIFICATE-----"]


def test_given_a_pod_when_it_asks_another_machine_then_there_is_no_way_out(web: str):
    code = (
        "import socket\n"
        "try: socket.create_connection(('192.0.2.99', 80), timeout=1)\n"
        "except OSError: print('no way')"
    )
    assert kubectl("exec", "web", "--", "python3", "-c", code).strip() == "no way"


def test_given_a_pod_when_its_log_is_asked_for_then_it_is_shown(web: str):
    assert "GET /hostname" in eventually(lambda: kubectl("logs", "web"))


def test_given_a_loaded_image_when_loaded_again_then_nothing_is_moved(
    web: str, engine: engines.Engine, capfd: pytest.CaptureFixture[str]
):
    loading.load(LAYOUT, engine, [IMAGE])
    assert f"{IMAGE} is loaded already" in capfd.readouterr().err


def test_given_an_image_when_streamed_instead_of_shared_then_pods_find_the_same_files(
    web: str, engine: engines.Engine
):
    ctr = ["ctr", "-a", str(LAYOUT.containerd_socket), "-n", "k8s.io"]
    contents = engine.contents(IMAGE)
    if contents is None:
        pytest.skip(f"{engine.name} shares no layers")
    chain = list(sharing.chain_ids(contents.layers))
    loading._pipe(engine.save_command(IMAGE), [*ctr, "images", "import", "-"])
    listed = subprocess.run([*ctr, "snapshots", "ls"], capture_output=True, text=True, check=True)
    # The archive's own layers hash to the same names: the folders held what the archive holds.
    assert set(chain) <= set(listed.stdout.split())
    assert len(listed.stdout.split("\n")) < 10


def test_given_a_write_when_the_audit_log_is_read_then_it_says_who_wrote_what(web: str):
    entries = [json.loads(line) for line in LAYOUT.audit_log.read_text().splitlines()]
    assert {entry["verb"] for entry in entries}.isdisjoint({"get", "list", "watch"})
    created = [e for e in entries if e["verb"] in {"create", "patch"} and "objectRef" in e]
    assert ("pods", "web", "admin") in {
        (e["objectRef"]["resource"], e["objectRef"].get("name"), e["user"]["username"])
        for e in created
    }


def test_given_a_dead_kubelet_and_containerd_when_up_again_then_the_pod_still_answers(web: str):
    for daemon in ("kubelet", "containerd"):
        processes.kill([processes._record(LAYOUT, daemon).pid])
    lifecycle.up(LAYOUT, Settings(index=4))
    assert fetch(f"{web}:8080") == "web"
    assert Path(LAYOUT.audit_log).exists()
