"""The pod template of a revision: engine, environment check, probes, and the least rights that do.

It does not know labels of arms, nor ReplicaSets.
"""

from __future__ import annotations

import copy
import json
from typing import Any, Final

from rampway_operator.core import names
from rampway_operator.core.durations import format_duration
from rampway_operator.core.spec import Engine, PreflightMode, Spec

__all__ = ["pod_template", "with_avoided_nodes"]

PROBE_SECONDS: Final = 2
_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_CHECK_MOUNT: Final = {"name": "rampway-check-env", "mountPath": "/rampway", "readOnly": True}
_OWN_MOUNTS: Final = (
    {"name": "rampway-tmp", "mountPath": "/tmp"},  # noqa: S108 - a path in the pod
    {"name": "rampway-shm", "mountPath": "/dev/shm"},  # noqa: S108 - a path in the pod
)


def pod_template(
    spec: Spec, config_map: str, revision: str, avoided_nodes: tuple[str, ...]
) -> dict[str, Any]:
    """The template of a revision's pods; `config_map` holds its check_env."""
    engine = spec.engine
    checks = spec.preflight.mode is not PreflightMode.OFF
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": engine.termination_grace_period_seconds,
        "containers": [_engine(engine, revision)],
        "volumes": _volumes(engine, config_map if checks else ""),
        "affinity": with_avoided_nodes(engine.affinity, avoided_nodes),
    }
    if checks:
        pod["initContainers"] = [_check_env(spec)]
    optional = {
        "nodeSelector": engine.node_selector,
        "tolerations": list(engine.tolerations),
        "topologySpreadConstraints": list(engine.topology_spread_constraints),
        "runtimeClassName": engine.runtime_class_name,
        "priorityClassName": engine.priority_class_name,
        "serviceAccountName": engine.service_account_name,
        "imagePullSecrets": list(engine.image_pull_secrets),
        "resourceClaims": list(engine.resource_claims),
    }
    pod.update({key: copy.deepcopy(value) for key, value in optional.items() if value})
    if not pod["affinity"]:
        del pod["affinity"]
    return {
        "metadata": {
            "labels": {"app.kubernetes.io/managed-by": "rampway", **engine.pod_labels},
            "annotations": {
                "kubectl.kubernetes.io/default-container": names.CONTAINER_ENGINE,
                **engine.pod_annotations,
            },
        },
        "spec": pod,
    }


def _engine(engine: Engine, revision: str) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": engine.port, "protocol": "TCP"}]
    if engine.scrape_port != engine.port:
        ports.append({"name": "metrics", "containerPort": engine.scrape_port, "protocol": "TCP"})
    container: dict[str, Any] = {
        "name": names.CONTAINER_ENGINE,
        "image": engine.image,
        "env": [*copy.deepcopy(list(engine.env)), {"name": "RAMPWAY_REVISION", "value": revision}],
        "ports": ports,
        "resources": copy.deepcopy(engine.resources),
        "volumeMounts": [*copy.deepcopy(list(engine.volume_mounts)), *map(dict, _OWN_MOUNTS)],
        "securityContext": copy.deepcopy(_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_probes(engine),
    }
    if engine.command:
        container["command"] = list(engine.command)
    if engine.args:
        container["args"] = list(engine.args)
    return container


def _probes(engine: Engine) -> dict[str, Any]:
    def probe(path: str, **timing: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "http"}, **timing}

    starts = max(1, round(engine.health.startup_timeout.total_seconds() / PROBE_SECONDS))
    return {
        "startupProbe": probe(
            engine.health.readiness,
            periodSeconds=PROBE_SECONDS,
            timeoutSeconds=PROBE_SECONDS,
            failureThreshold=starts,
        ),
        "readinessProbe": probe(
            engine.health.readiness,
            periodSeconds=PROBE_SECONDS,
            timeoutSeconds=5,
            failureThreshold=3,
        ),
        "livenessProbe": probe(
            engine.health.liveness, periodSeconds=10, timeoutSeconds=5, failureThreshold=3
        ),
    }


def _check_env(spec: Spec) -> dict[str, Any]:
    """The check sees what the engine will see: image, resources, mounts, and the plain part of its env."""
    engine, preflight = spec.engine, spec.preflight
    requirements = json.dumps(preflight.requirements, sort_keys=True, separators=(",", ":"))
    command = ["python3", "/rampway/check_env.pyz", "--requirements", requirements]
    command += ["--timeout", format_duration(preflight.timeout)]
    if preflight.mode is PreflightMode.WARN:
        command.append("--warn")
    if preflight.image:
        command.append("--other-image")
    return {
        "name": names.CONTAINER_CHECK,
        "image": preflight.image or engine.image,
        "command": command,
        "env": [dict(entry) for entry in engine.env if "value" in entry],
        "resources": copy.deepcopy(engine.resources),
        "volumeMounts": [
            *copy.deepcopy(list(engine.volume_mounts)),
            *map(dict, _OWN_MOUNTS),
            dict(_CHECK_MOUNT),
        ],
        "securityContext": copy.deepcopy(_SECURITY),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _volumes(engine: Engine, config_map: str) -> list[dict[str, Any]]:
    volumes = [
        *copy.deepcopy(list(engine.volumes)),
        {"name": "rampway-tmp", "emptyDir": {}},
        {
            "name": "rampway-shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": engine.shared_memory},
        },
    ]
    if config_map:
        volumes.append({"name": "rampway-check-env", "configMap": {"name": config_map}})
    return volumes


def with_avoided_nodes(affinity: dict[str, Any], nodes: tuple[str, ...]) -> dict[str, Any]:
    """`affinity` that also keeps away from `nodes`: in every term, since terms are alternatives."""
    result = copy.deepcopy(affinity)
    if not nodes:
        return result
    required = result.setdefault("nodeAffinity", {}).setdefault(
        "requiredDuringSchedulingIgnoredDuringExecution", {}
    )
    avoid = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": sorted(nodes)}
    terms = required.get("nodeSelectorTerms") or [{}]
    for term in terms:
        term["matchExpressions"] = [*(term.get("matchExpressions") or []), copy.deepcopy(avoid)]
    required["nodeSelectorTerms"] = terms
    return result
