"""A real API server lets the operator's account change its own labels of pods and nothing else of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.kube import CommandFailed, Kube, wait_until

pytestmark = pytest.mark.e2e

CHART = Path(__file__).resolve().parents[2] / "charts" / "rampway"
RELEASE = "e2e-pod-policy"
NAMESPACE = "default"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{RELEASE}-rampway"
TEMPLATES = ("serviceaccount", "rbac", "admissionpolicy")

ALLOWED: dict[str, dict[str, Any]] = {
    "into rotation": {
        "labels": {"rampway.dev/in-rotation": "true", "rampway.dev/arm": "candidate"}
    },
    "out of rotation": {"labels": {"rampway.dev/in-rotation": None}},
    "first to be deleted": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a label of the user": ({"metadata": {"labels": {"team": "b"}}}, "may only change the labels"),
    "a label taken away": ({"metadata": {"labels": {"team": None}}}, "may only change the labels"),
    "the revision": (
        {"metadata": {"labels": {"rampway.dev/revision": "x"}}},
        "may only change the labels",
    ),
    "an annotation": (
        {"metadata": {"annotations": {"note": "x"}}},
        "may only change the annotation",
    ),
    "the image": (
        {"spec": {"containers": [{"name": "engine", "image": "registry.example/evil:1"}]}},
        "may not change the spec",
    ),
    "the owner": ({"metadata": {"finalizers": ["example.com/hold"]}}, "owners or finalizers"),
}


def pod(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "serviceAccountName": f"{RELEASE}-rampway",
            "automountServiceAccountToken": False,
            "nodeSelector": {"example.com/nowhere": "true"},
            "containers": [{"name": "engine", "image": "registry.example/llm:1"}],
        },
    }


@pytest.fixture(scope="module")
def policed(kubeconfig: str) -> Iterator[Kube]:
    """The chart's account, roles and policy, one pod of ours and one of somebody else."""
    cluster = Kube(kubeconfig, NAMESPACE)
    chosen = [word for name in TEMPLATES for word in ("-s", f"templates/{name}.yaml")]
    manifests = cluster.run("helm", "template", RELEASE, str(CHART), "-n", NAMESPACE, *chosen)
    ours = pod("e2e-policy-ours", {"rampway.dev/name": "chat", "team": "a"})
    theirs = pod("e2e-policy-theirs", {"team": "a"})
    try:
        cluster.kubectl("apply", "-f", "-", stdin=manifests)
        cluster.apply(ours, theirs)
        # The API server takes up a new policy within a second or two.
        wait_until("the policy in force", lambda: refused(cluster, "e2e-policy-theirs"), 30)
        yield cluster
    finally:
        for each in (ours, theirs):
            cluster.kubectl(
                "delete",
                "pod",
                each["metadata"]["name"],
                "--ignore-not-found",
                "--grace-period=0",
                "--force",
            )
        cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=manifests)


def patch(cluster: Kube, name: str, body: dict[str, Any]) -> None:
    cluster.kubectl(
        "patch", "pod", name, f"--as={ACCOUNT}", "--type=strategic", "-p", json.dumps(body)
    )


def refused(cluster: Kube, name: str) -> bool:
    try:
        patch(cluster, name, {"metadata": {"labels": {"rampway.dev/arm": "stable"}}})
    except CommandFailed as refusal:
        return "ValidatingAdmissionPolicy" in str(refusal)
    return False


@pytest.mark.parametrize("metadata", ALLOWED.values(), ids=ALLOWED.keys())
def test_given_a_pod_of_ours_when_the_operator_moves_it_then_it_may(
    policed: Kube, metadata: dict[str, Any]
) -> None:
    patch(policed, "e2e-policy-ours", {"metadata": metadata})


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_given_a_pod_of_ours_when_the_operator_changes_more_then_it_is_refused(
    policed: Kube, body: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandFailed, match=message):
        patch(policed, "e2e-policy-ours", body)


def test_given_a_pod_of_somebody_else_when_the_operator_labels_it_then_it_is_refused(
    policed: Kube,
) -> None:
    with pytest.raises(CommandFailed, match="may only change pods that carry"):
        patch(policed, "e2e-policy-theirs", {"metadata": {"labels": {"rampway.dev/arm": "stable"}}})
