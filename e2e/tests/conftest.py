"""Fixtures of the end-to-end tests: a cluster, and a namespace with an operator of its own per module."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from harness.kube import CommandFailed, Kube

OPERATOR_IMAGE = os.environ.get("E2E_OPERATOR_IMAGE", "localhost/rampway/operator:dev")


@pytest.fixture(scope="session")
def kubeconfig() -> str:
    """The cluster to test on; the tests are skipped, and say so, without one."""
    path = os.environ.get("E2E_KUBECONFIG", "")
    if not path:
        pytest.skip(
            "needs a cluster: set E2E_KUBECONFIG, or run make test-e2e, which brings one up"
        )
    return path


@pytest.fixture(scope="module")
def kube(request: pytest.FixtureRequest, kubeconfig: str) -> Iterator[Kube]:
    """A namespace named after the test file, with the operator installed by Helm; gone afterwards."""
    name = re.sub(r"[^a-z0-9]+", "-", request.path.stem.removeprefix("test_"))
    stage = Kube(kubeconfig, f"e2e-{name}"[:40].rstrip("-"))
    stage.delete_namespace()
    stage.create_namespace()
    try:
        # four operators of two replicas share the two cores of the local cluster
        stage.install_operator(OPERATOR_IMAGE, "resources.requests.cpu=30m")
        yield stage
    finally:
        if not os.environ.get("E2E_KEEP"):
            stage.delete_namespace()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    stage = getattr(item, "funcargs", {}).get("kube")
    if report.when == "call" and report.failed and isinstance(stage, Kube):
        for title, words in (
            ("objects", ("get", "infd,rs,pods,svc", "-o", "wide", "--show-labels")),
            ("status", ("get", "infd", "-o", "yaml")),
            ("events", ("get", "events", "--sort-by=.lastTimestamp")),
            (
                "operator",
                ("logs", "-l", "app.kubernetes.io/name=rampway", "--tail=150", "--prefix"),
            ),
        ):
            try:
                text = stage.kubectl(*words)
            except CommandFailed as failure:
                text = str(failure)
            report.sections.append((f"kubectl: {title}", text[-20000:]))
    return report
