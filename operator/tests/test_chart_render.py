"""The chart as Helm renders it: exact permissions, restricted pods, the operator's settings, refused values."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from rampway_operator.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "rampway"
BUILT = Path.home() / ".cache" / "rampway" / "cluster" / "bin"
HELM = shutil.which("helm", path=f"{os.environ.get('PATH', '')}:{BUILT}")

needs_helm = pytest.mark.skipif(
    HELM is None, reason=f"helm is neither in PATH nor in {BUILT} (make cluster-up builds it)"
)

NAMESPACED = [
    ({"rampway.dev"}, {"inferencedeployments"}, ["get", "list", "watch", "patch"]),
    ({"rampway.dev"}, {"inferencedeployments/status"}, ["patch"]),
    ({"rampway.dev"}, {"inferencedeployments/finalizers"}, ["update"]),
    ({"apps"}, {"replicasets"}, ["get", "list", "watch", "create", "patch", "delete"]),
    ({""}, {"services"}, ["get", "list", "watch", "create", "delete"]),
    ({""}, {"configmaps"}, ["get", "list", "create", "patch", "delete"]),
    ({""}, {"pods"}, ["get", "list", "watch", "patch", "delete"]),
    ({"policy"}, {"poddisruptionbudgets"}, ["get", "list", "create", "patch", "delete"]),
    ({"discovery.k8s.io"}, {"endpointslices"}, ["list"]),
    ({""}, {"events"}, ["create"]),
]
"""Everything that the operator may do where it serves. A change here is a change of its power."""

LEASE = [
    ({"coordination.k8s.io"}, {"leases"}, ["create"]),
    ({"coordination.k8s.io"}, {"leases"}, ["get", "patch"]),
]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def rendered(*settings: str) -> list[dict[str, Any]]:
    flags = [flag for setting in settings for flag in ("--set", setting)]
    done = helm("template", "rampway", str(CHART), "--namespace", "prod", *flags)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


def rules(role: dict[str, Any]) -> list[tuple[set[str], set[str], list[str]]]:
    return [(set(r["apiGroups"]), set(r["resources"]), r["verbs"]) for r in role["rules"]]


def container(documents: list[dict[str, Any]]) -> dict[str, Any]:
    [deployment] = of_kind(documents, "Deployment")
    [only] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only)


def environment(documents: list[dict[str, Any]]) -> dict[str, str]:
    fields = {"metadata.namespace": "prod", "metadata.name": "rampway-1"}
    return {
        entry["name"]: entry["value"]
        if "value" in entry
        else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
        for entry in container(documents)["env"]
    }


@needs_helm
def test_given_the_chart_when_linted_then_helm_finds_no_fault() -> None:
    done = helm("lint", "--strict", str(CHART))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@needs_helm
def test_given_the_defaults_then_the_permissions_are_exactly_these() -> None:
    documents = rendered()
    roles = {role["metadata"]["name"]: role for role in of_kind(documents, "Role")}

    assert set(roles) == {"rampway", "rampway-lease"}
    assert rules(roles["rampway"]) == NAMESPACED
    assert rules(roles["rampway-lease"]) == LEASE
    assert roles["rampway-lease"]["rules"][1]["resourceNames"] == ["rampway"]
    assert of_kind(documents, "ClusterRole") == []
    for binding in of_kind(documents, "RoleBinding"):
        assert binding["subjects"] == [
            {"kind": "ServiceAccount", "name": "rampway", "namespace": "prod"}
        ]


@needs_helm
def test_given_cluster_scope_then_a_cluster_role_has_the_same_rules_and_every_namespace_is_served() -> (
    None
):
    documents = rendered("clusterScope=true")
    [role] = of_kind(documents, "ClusterRole")

    assert rules(role) == NAMESPACED
    assert [r["metadata"]["name"] for r in of_kind(documents, "Role")] == ["rampway-lease"]
    assert environment(documents)["RAMPWAY_NAMESPACES"] == "*"


@needs_helm
def test_given_other_namespaces_then_each_has_a_role_and_the_lease_stays_at_home() -> None:
    documents = rendered("watchNamespaces={a,b}")
    homes = {
        (r["metadata"]["name"], r["metadata"]["namespace"]) for r in of_kind(documents, "Role")
    }

    assert homes == {("rampway", "a"), ("rampway", "b"), ("rampway-lease", "prod")}
    assert environment(documents)["RAMPWAY_NAMESPACES"] == "a,b"
    [policy] = of_kind(documents, "NetworkPolicy")
    assert '"values": ["a", "b"]' in json.dumps(policy)


@needs_helm
@pytest.mark.parametrize("settings", [(), ("clusterScope=true",), ("watchNamespaces={a}",)])
def test_given_any_scope_then_no_rule_reaches_secrets_or_uses_a_wildcard(
    settings: tuple[str, ...],
) -> None:
    for role in [d for d in rendered(*settings) if d["kind"] in {"Role", "ClusterRole"}]:
        text = json.dumps(role["rules"])
        for word in (
            '"*"',
            "secrets",
            "exec",
            "escalate",
            "impersonate",
            "bind",
            "deletecollection",
        ):
            assert word not in text


@needs_helm
def test_given_the_pod_then_it_runs_restricted_with_a_read_only_root() -> None:
    documents = rendered()
    [deployment] = of_kind(documents, "Deployment")
    pod, only = deployment["spec"]["template"]["spec"], container(documents)

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] >= 10_000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert [set(volume) - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}]
    assert only["resources"]["limits"]["memory"]


@needs_helm
def test_given_the_pod_then_its_probes_and_settings_are_what_the_operator_reads() -> None:
    documents = rendered("httpPort=9999", "log.level=debug")
    only = container(documents)
    settings = read_settings(environment(documents), namespace_file=Path("/nonexistent"))

    assert only["args"] == ["run"]
    assert settings.namespaces == ("prod",)
    assert (settings.lease_name, settings.lease_namespace) == ("rampway", "prod")
    assert (settings.identity, settings.http_port) == ("rampway-1", 9999)
    assert (settings.log_format, settings.log_level) == ("json", "debug")
    assert only["ports"] == [{"name": "http", "containerPort": 9999}]
    assert only["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


@needs_helm
def test_given_a_digest_and_a_tag_then_the_digest_wins() -> None:
    digest = "sha256:" + "a" * 64

    assert container(rendered("image.repository=r/o", "image.tag=v7"))["image"] == "r/o:v7"
    assert container(rendered("image.tag=v7", f"image.digest={digest}"))["image"].endswith(
        f"@{digest}"
    )
    assert re.search(r":[0-9]+\.[0-9]+\.[0-9]+$", container(rendered())["image"])


@needs_helm
def test_given_one_replica_then_no_budget_blocks_a_drain() -> None:
    assert of_kind(rendered("replicas=1"), "PodDisruptionBudget") == []
    assert len(of_kind(rendered(), "PodDisruptionBudget")) == 1


@needs_helm
def test_given_options_then_their_objects_come_and_go() -> None:
    everything = rendered(
        "metrics.serviceMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true",
        "metrics.dashboard.enabled=true",
    )
    nothing = rendered(
        "networkPolicy.enabled=false",
        "podDisruptionBudget.enabled=false",
        "admissionPolicy.enabled=false",
        "metrics.service.enabled=false",
        "rbac.create=false",
        "serviceAccount.create=false",
    )

    assert len(of_kind(everything, "ServiceMonitor")) == 1
    assert len(of_kind(everything, "PrometheusRule")) == 1
    assert len(of_kind(everything, "ConfigMap")) == 1
    assert [document["kind"] for document in nothing] == ["Deployment"]


@needs_helm
def test_given_any_rendering_then_the_crd_is_no_template() -> None:
    """What is a template is deleted by `helm uninstall`, and every InferenceDeployment with it."""
    assert of_kind(rendered(), "CustomResourceDefinition") == []
    assert len(of_kind(list(shown_crds()), "CustomResourceDefinition")) == 1


def shown_crds() -> list[dict[str, Any]]:
    done = helm("show", "crds", str(CHART))
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@needs_helm
def test_given_an_install_when_done_then_the_notes_say_the_next_command() -> None:
    done = helm(
        "install",
        "rampway",
        str(CHART),
        "--namespace",
        "prod",
        "--dry-run=client",
        "--hide-notes=false",
    )

    assert done.returncode == 0, done.stderr
    assert "kubectl -n prod rollout status deployment/rampway" in done.stdout
    assert "kubectl -n prod apply -f -" in done.stdout


@needs_helm
@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("replica=2", "replica"),
        ("image.tagg=1", "tagg"),
        ("image.tag=latest", "tag"),
        ("image.digest=sha256:abc", "digest"),
        ("replicas=0", "replicas"),
        ("log.level=loud", "level"),
        ("watchNamespaces={A}", "watchNamespaces"),
        ("httpPort=80", "httpPort"),
    ],
)
def test_given_a_wrong_value_then_helm_names_it(setting: str, word: str) -> None:
    done = helm("template", "rampway", str(CHART), "--set", setting)

    assert done.returncode != 0
    assert word in done.stderr


@needs_helm
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("clusterScope=true", "watchNamespaces={a}"), "leave watchNamespaces empty"),
        (
            ("metrics.serviceMonitor.enabled=true", "metrics.service.enabled=false"),
            "set metrics.service.enabled to true",
        ),
    ],
)
def test_given_values_that_contradict_each_other_then_helm_says_what_to_do(
    settings: tuple[str, ...], message: str
) -> None:
    flags = [flag for setting in settings for flag in ("--set", setting)]

    done = helm("template", "rampway", str(CHART), *flags)

    assert done.returncode != 0
    assert message in done.stderr


def test_given_the_values_file_then_its_schema_knows_every_value_and_no_other() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    jsonschema.validate(values, schema)
    assert set(schema["properties"]) - set(values) == {"global"}
    assert faults(schema) == []


def faults(schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the objects of the values schema that would take unknown names."""
    found = []
    for name, inner in schema.get("properties", {}).items():
        found += faults(inner, f"{path}.{name}")
    if "properties" in schema and schema.get("additionalProperties") is not False:
        found.append(path)
    return found


def test_given_the_values_file_then_every_value_is_commented() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    bare = [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if re.match(r"^\s*[A-Za-z]+:\s*\S", line)
        and not before.strip().startswith("# -- ")
        and not line.strip().startswith(("requests:", "limits:"))
    ]

    assert bare == []
