"""Reads `spec.engine`: what a pod may be. It does not know rollouts.

The schema refuses most of this before; an old schema, or a switched-off one, does not. What could reach
the node or another namespace (host paths, capabilities, tokens) has no field here.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

from rampway_operator.core.reader import Node
from rampway_operator.core.spec import Engine, EngineType, Health

__all__ = ["read_engine"]

FORBIDDEN_ENV: Final = ("LD_", "PYTHON", "NVIDIA_", "RAMPWAY_")
RESERVED_PREFIX: Final = "rampway.dev/"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_HTTP_PATH: Final = r"/[A-Za-z0-9._~/\-]*"
_DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_OBJECT_NAME: Final = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_KEY: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_FIELD_REFS: Final = (
    "metadata.name|metadata.namespace|metadata.uid|spec.nodeName|spec.serviceAccountName|"
    "status.hostIP|status.podIP"
)
_VOLUME_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "configMap": ("name", "optional", "defaultMode", "items"),
    "emptyDir": ("medium", "sizeLimit"),
    "persistentVolumeClaim": ("claimName", "readOnly"),
    "image": ("reference", "pullPolicy"),
}
_RESERVED_MOUNTS: Final = ("/rampway", "/dev/shm", "/tmp")  # noqa: S108 - mount paths in a pod


def read_engine(node: Node) -> Engine:
    """The engine, with every fault noted in `node.faults`."""
    if not node.present:
        node.fault("is missing")
    node.object(
        "type", "image", "command", "args", "env", "port", "metricsPort", "metricsPath", "health",
        "resources", "resourceClaims", "volumes", "volumeMounts", "podLabels", "podAnnotations",
        "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "runtimeClassName",
        "priorityClassName", "serviceAccountName", "imagePullSecrets",
        "terminationGracePeriodSeconds", "sharedMemory",
    )  # fmt: skip
    kind = node.get("type").one_of(EngineType, EngineType.RAMPWAY)
    port = node.get("port").integer(8000, 1, 65535)
    metrics = node.get("metricsPort")
    metrics_port = metrics.integer(0, 1, 65535) or None if metrics.present else None
    volumes = _volumes(node.get("volumes"))
    return Engine(
        image=node.get("image").text("", pattern=r"[^\s]+", most=512, least=1),
        type=kind,
        command=_texts(node.get("command"), 64),
        args=_texts(node.get("args"), 256),
        env=_env(node.get("env")),
        port=port,
        metrics_port=metrics_port,
        metrics_path=node.get("metricsPath").text("/metrics", pattern=_HTTP_PATH, most=256),
        health=_health(node.get("health")),
        resources=_resources(node.get("resources")),
        resource_claims=_plain(node.get("resourceClaims"), 16, "name"),
        volumes=volumes,
        volume_mounts=_mounts(node.get("volumeMounts"), {str(v.get("name")) for v in volumes}),
        pod_labels=_labels(node.get("podLabels"), values=_LABEL_VALUE, most=63),
        pod_annotations=_labels(node.get("podAnnotations"), values="", most=8192),
        node_selector=_labels(node.get("nodeSelector"), values="", most=63, reserved=False),
        tolerations=_plain(node.get("tolerations"), 32),
        affinity=_affinity(node.get("affinity")),
        topology_spread_constraints=_plain(
            node.get("topologySpreadConstraints"), 8, "maxSkew", "topologyKey", "whenUnsatisfiable"
        ),
        runtime_class_name=node.get("runtimeClassName").text("", most=253),
        priority_class_name=node.get("priorityClassName").text("", most=253),
        service_account_name=node.get("serviceAccountName").text("", most=253),
        image_pull_secrets=_plain(node.get("imagePullSecrets"), 16, "name"),
        termination_grace_period_seconds=node.get("terminationGracePeriodSeconds").integer(
            120, 0, 86400
        ),
        shared_memory=node.get("sharedMemory").quantity("1Gi"),
    )


def _health(node: Node) -> Health:
    node.object("readiness", "liveness", "startupTimeout")
    return Health(
        readiness=node.get("readiness").text("/readyz", pattern=_HTTP_PATH, most=256),
        liveness=node.get("liveness").text("/livez", pattern=_HTTP_PATH, most=256),
        startup_timeout=node.get("startupTimeout").duration(
            timedelta(minutes=20), least=timedelta(seconds=10)
        ),
    )


def _texts(node: Node, most: int) -> tuple[str, ...]:
    return tuple(item.text() for item in node.items(most))


def _env(node: Node) -> tuple[dict[str, Any], ...]:
    result, seen = [], set()
    for item in node.items(128):
        item.object("name", "value", "valueFrom")
        name = item.get("name").text("", pattern=r"[A-Za-z_][A-Za-z0-9_.\-]*", most=256, least=1)
        if name.startswith(FORBIDDEN_ENV):
            item.get("name").fault(
                f"{name!r} is refused: LD_*, PYTHON* and NVIDIA_* change what code is loaded or which "
                "devices are seen, RAMPWAY_* is the operator's; set it in the image"
            )
        if name and name in seen:
            item.get("name").fault(f"{name!r} is given twice")
        seen.add(name)
        value, source = item.get("value"), item.get("valueFrom")
        if value.present and source.present:
            item.fault("has value and valueFrom, need one of them")
        if source.present:
            result.append({"name": name, "valueFrom": _source(source)})
        else:
            result.append({"name": name, "value": value.text("", most=32768)})
    return tuple(result)


def _source(node: Node) -> dict[str, Any]:
    kinds = ("configMapKeyRef", "secretKeyRef", "fieldRef")
    node.object(*kinds)
    given = [kind for kind in kinds if node.get(kind).present]
    if len(given) != 1:
        node.fault(f"has {len(given)} sources, need exactly one of {', '.join(kinds)}")
        return {}
    inner = node.get(given[0])
    if given[0] == "fieldRef":
        inner.object("fieldPath")
        return {
            "fieldRef": {"fieldPath": inner.get("fieldPath").text(pattern=_FIELD_REFS, least=1)}
        }
    inner.object("name", "key", "optional")
    return {
        given[0]: {
            "name": inner.get("name").text(pattern=_OBJECT_NAME, most=253, least=1),
            "key": inner.get("key").text(most=253, least=1),
            "optional": inner.get("optional").boolean(default=False),
        }
    }


def _resources(node: Node) -> dict[str, Any]:
    node.object("limits", "requests", "claims")
    result: dict[str, Any] = {}
    for part in ("limits", "requests"):
        inner = node.get(part).object()
        keys = inner.value if inner.present else {}
        amounts = {str(key): inner.get(str(key)).quantity("0") for key in keys}
        if amounts:
            result[part] = amounts
    for name in result.get("requests", {}):
        if "/" in name and name not in result.get("limits", {}):
            node.get("requests").fault(
                f"{name!r} is not in limits, an extended resource needs both"
            )
    claims = _plain(node.get("claims"), 16, "name")
    if claims:
        result["claims"] = list(claims)
    return result


def _volumes(node: Node) -> tuple[dict[str, Any], ...]:
    result, seen = [], set()
    for item in node.items(32):
        item.object("name", *_VOLUME_KINDS)
        name = item.get("name").text("", pattern=_DNS_LABEL, most=63, least=1)
        if name.startswith("rampway"):
            item.get("name").fault(
                f"{name!r} is reserved: names starting with rampway are the operator's"
            )
        if name and name in seen:
            item.get("name").fault(f"{name!r} is given twice")
        seen.add(name)
        given = [kind for kind in _VOLUME_KINDS if item.get(kind).present]
        if len(given) != 1:
            item.fault(f"has {len(given)} sources, need exactly one of {', '.join(_VOLUME_KINDS)}")
            continue
        inner = item.get(given[0]).object(*_VOLUME_KINDS[given[0]])
        result.append({"name": name, given[0]: dict(inner.value) if inner.present else {}})
    return tuple(result)


def _mounts(node: Node, volumes: set[str]) -> tuple[dict[str, Any], ...]:
    result = []
    for item in node.items(32):
        item.object("name", "mountPath", "readOnly", "subPath")
        name = item.get("name").text("", most=63, least=1)
        path = item.get("mountPath").text("", pattern=r"/[^:]*", most=512, least=1)
        sub_path = item.get("subPath").text("", most=512)
        if name and name not in volumes:
            item.get("name").fault(f"{name!r} is not a volume of engine.volumes")
        if any(path == taken or path.startswith(f"{taken}/") for taken in _RESERVED_MOUNTS):
            item.get("mountPath").fault(f"{path!r} is mounted by the operator, mount elsewhere")
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            item.get("subPath").fault(f"{sub_path!r} must be relative and without ..")
        mount = {
            "name": name,
            "mountPath": path,
            "readOnly": item.get("readOnly").boolean(default=False),
        }
        result.append({**mount, "subPath": sub_path} if sub_path else mount)
    return tuple(result)


def _labels(node: Node, *, values: str, most: int, reserved: bool = True) -> dict[str, str]:
    node.object()
    result = {}
    for key in node.value if node.present else ():
        if not isinstance(key, str):
            continue
        if _KEY.fullmatch(key) is None:
            node.fault(f"{key[:80]!r} is not a label key")
        elif reserved and (key.startswith(RESERVED_PREFIX) or key == DELETION_COST):
            node.fault(f"{key!r} belongs to the operator, use a prefix of your own")
        result[key] = Node(node.value[key], f"{node.path}[{key}]", node.faults).text(
            "", pattern=values, most=most
        )
    return result


def _affinity(node: Node) -> dict[str, Any]:
    node.object("nodeAffinity", "podAffinity", "podAntiAffinity")
    kept: dict[str, Any] = {}
    for part in ("nodeAffinity", "podAffinity", "podAntiAffinity"):
        inner = node.get(part).object(
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        )
        if inner.present:
            kept[part] = dict(inner.value)
    required = node.get("nodeAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    required.object("nodeSelectorTerms")
    for term in required.get("nodeSelectorTerms").items(16):
        term.object("matchExpressions", "matchFields")
    return kept


def _plain(node: Node, most: int, *required: str) -> tuple[dict[str, Any], ...]:
    """Kubernetes-shaped objects, kept as they are: the API server judges them when pods are made."""
    result = []
    for item in node.items(most):
        item.object()
        if not item.present:
            item.fault("is empty, need an object")
        for key in required:
            if not item.get(key).present:
                item.get(key).fault("is missing")
        if isinstance(item.value, dict):
            result.append(dict(item.value))
    return tuple(result)
