"""The operator as a process beside a real API server: election, kill, hand-over, permissions, the plugin."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.kube import REPOSITORY, Kube, wait_until
from harness.manifests import inference_deployment

pytestmark = pytest.mark.e2e

NAME = "chat"
SPEC = {"engine": {"image": "localhost/rampway/does-not-exist:1"}, "strategy": {"canary": {}}}
ENVIRONMENT = os.environ | {"PYTHONPATH": str(REPOSITORY / "operator" / "src")}


class Process:
    """One operator process on this machine."""

    def __init__(self, kubeconfig: str, namespace: str, folder: Path, name: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.name = name
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "rampway_operator", "run", "--kubeconfig", kubeconfig]
        command += ["--namespaces", namespace, "--http-port", str(self.port), "--identity", name]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log, env=ENVIRONMENT)

    def get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, OSError):
            return ""

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return self.get("/readyz") == "ok\n"

        wait_until(f"{self.name} is ready", ready, 40, every=0.2)

    def stop(self) -> tuple[int, float]:
        """Exit code and seconds after SIGTERM."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20), time.monotonic() - began


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, kubeconfig: str) -> Iterator[Kube]:
    """A namespace without an operator."""
    kube = Kube(kubeconfig, "e2e-shell-process")
    kube.delete_namespace()
    kube.create_namespace()
    kube.apply_crds()
    try:
        yield kube
    finally:
        if not os.environ.get("E2E_KEEP"):
            kube.delete_namespace()


@pytest.fixture
def operators(stage: Kube, tmp_path: Path) -> Iterator[list[Process]]:
    """Two operator processes; the first leads."""
    stage.kubectl("delete", "lease", "rampway-operator", "--ignore-not-found")
    started: list[Process] = []
    try:
        for name in ("first", "second"):
            started.append(Process(stage.kubeconfig, stage.namespace, tmp_path, name))
            started[-1].wait_ready()
            wait_until("first leads", lambda: holder(stage) == "first", 25, every=0.2)
        yield started
    finally:
        for operator in started:
            operator.process.kill()
            operator.process.wait(10)
            sys.stderr.write(operator.log.read_text()[-3000:])


def holder(kube: Kube) -> str:
    leases = json.loads(kube.kubectl("get", "leases", "-o", "json"))["items"]
    held = [lease["spec"].get("holderIdentity", "") for lease in leases]
    return held[0] if held else ""


def plugin(kube: Kube, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `kubectl rampway`."""
    code = "import sys; from rampway_operator.cli.app import main; sys.exit(main())"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            *arguments,
            "-n",
            kube.namespace,
            "--kubeconfig",
            kube.kubeconfig,
        ],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=90,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_given_a_leader_when_it_stops_then_it_exits_zero_and_the_other_leads_within_seconds(
    stage: Kube, operators: list[Process]
) -> None:
    first, second = operators
    assert "rampway_operator_leader 1.0" in first.get("/metrics")
    assert "rampway_operator_leader 0.0" in second.get("/metrics")
    code, seconds = first.stop()
    assert code == 0, first.log.read_text()
    assert seconds < 5
    # Sooner than a Lease that was not released runs out (15 s), also on a busy machine.
    wait_until("second leads", lambda: holder(stage) == "second", 10, every=0.1)


def test_given_a_leader_when_it_is_killed_then_the_other_acts_within_20_seconds(
    stage: Kube, operators: list[Process]
) -> None:
    first, _ = operators
    first.process.kill()
    began = time.monotonic()
    stage.apply(inference_deployment("killed", SPEC))
    wait_until(
        "the second operator writes status",
        lambda: stage.get("infd", "killed").get("status", {}).get("observedGeneration", -1) > 0,
        25,
        every=0.2,
    )
    assert time.monotonic() - began < 22
    stage.kubectl("delete", "infd", "killed", "--wait=false")


def test_given_a_leader_whose_lease_is_taken_when_it_renews_then_it_ends_at_once(
    stage: Kube, operators: list[Process]
) -> None:
    first, second = operators
    second.stop()
    stolen = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}
    stage.patch("lease", "rampway-operator", stolen)
    assert first.process.wait(10) == 1
    assert "lost the lease" in first.log.read_text()


def test_given_objects_when_the_plugin_is_asked_then_it_tells_and_commands_and_says_what_is_wrong(
    stage: Kube, operators: list[Process]
) -> None:
    stage.apply(inference_deployment(NAME, SPEC))
    wait_until("a rollout runs", lambda: "Preflight" in plugin(stage, "status", NAME)[1], 30)
    assert plugin(stage, "wait", NAME, "--timeout", "1s")[0] == 2
    assert plugin(stage, "pause", NAME) == (0, f"{NAME}: paused\n")
    assert plugin(stage, "resume", NAME) == (0, f"{NAME}: resumed\n")
    assert plugin(stage, "abort", NAME) == (0, f"abort {NAME}: applied\n")
    code, told = plugin(stage, "wait", NAME, "--timeout", "60s")
    assert code == 1
    assert "RolledBack" in told
    assert plugin(stage, "abort", NAME)[0] == 3
    code, told = plugin(stage, "status", "nope")
    assert code == 3
    assert f"there are: {NAME}" in told
    assert "Aborted" in plugin(stage, "history", NAME)[1]
    shown = json.loads(plugin(stage, "status", NAME, "-o", "json")[1])
    assert shown["status"]["lastCommand"]["result"] == "Applied"
    assert stage.kubectl("describe", "infd", NAME).count("Aborted") >= 1


def test_given_no_rights_when_started_then_one_line_and_exit_1(stage: Kube, tmp_path: Path) -> None:
    stage.kubectl("create", "serviceaccount", "powerless")
    token = stage.kubectl("create", "token", "powerless").strip()
    config = json.loads(stage.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
    config["users"] = [{"name": config["contexts"][0]["context"]["user"], "user": {"token": token}}]
    path = tmp_path / "powerless"
    path.write_text(json.dumps(config))
    operator = Process(str(path), stage.namespace, tmp_path, "powerless-operator")
    assert operator.process.wait(30) == 1
    last = operator.log.read_text().strip().splitlines()[-1]
    assert re.match(r"rampway-operator: .*forbidden.*inferencedeployments", last), last
    code, told = plugin(Kube(str(path), stage.namespace), "status", NAME)
    assert code == 3
    assert "not allowed" in told


def test_given_an_object_that_is_deleted_when_no_operator_runs_then_nothing_of_it_stays(
    stage: Kube, operators: list[Process]
) -> None:
    stage.apply(inference_deployment("gone", SPEC))
    mine = "rampway.dev/name=gone"
    wait_until("it has pods", lambda: stage.list("pods", mine), 30)
    for operator in operators:
        operator.stop()
    stage.kubectl("delete", "infd", "gone", "--timeout=30s")
    wait_until("all is gone", lambda: not stage.list("rs,pods,svc,cm,pdb", mine), 60)
