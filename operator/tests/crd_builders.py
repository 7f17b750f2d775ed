"""The CRD as the tests see it: its schema, its defaults, and one spec that uses every field.

Knows the rules of structural schemas, not what any field means.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[2]
CRD_FILE = ROOT / "crds" / "inferencedeployments.yaml"
EXAMPLES = sorted((ROOT / "crds" / "examples").glob("*.yaml"))
CRD: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text(encoding="utf-8"))
VERSION: dict[str, Any] = CRD["spec"]["versions"][0]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]
SPEC_SCHEMA: dict[str, Any] = SCHEMA["properties"]["spec"]
STATUS_SCHEMA: dict[str, Any] = SCHEMA["properties"]["status"]

Path_ = tuple[str, ...]

FULL: dict[str, Any] = {
    "replicas": 4,
    "minReadySeconds": 7,
    "revisionHistoryLimit": 5,
    "progressDeadline": "45m",
    "paused": True,
    "engine": {
        "type": "VLLM",
        "image": "registry.example/llm:2",
        "command": ["serve"],
        "args": ["--model", "/models/m"],
        "env": [
            {"name": "A", "value": "1"},
            {
                "name": "B",
                "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}},
            },
            {
                "name": "C",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}},
            },
            {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "port": 9000,
        "metricsPort": 9100,
        "metricsPath": "/prometheus/metrics",
        "health": {"readiness": "/r", "liveness": "/l", "startupTimeout": "40m"},
        "resources": {
            "limits": {"nvidia.com/gpu": 1, "memory": "48Gi"},
            "requests": {"cpu": "4"},
            "claims": [{"name": "gpus", "request": "one"}],
        },
        "resourceClaims": [
            {"name": "gpus", "resourceClaimTemplateName": "template"},
            {"name": "shared", "resourceClaimName": "claim"},
        ],
        "volumes": [
            {
                "name": "config",
                "configMap": {
                    "name": "c",
                    "optional": True,
                    "defaultMode": 256,
                    "items": [{"key": "k", "path": "p"}],
                },
            },
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "models", "persistentVolumeClaim": {"claimName": "m", "readOnly": True}},
            {
                "name": "weights",
                "image": {"reference": "registry.example/w:1", "pullPolicy": "Always"},
            },
        ],
        "volumeMounts": [
            {"name": "models", "mountPath": "/models", "readOnly": True, "subPath": "a"}
        ],
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "nodeSelector": {"gpu": "h200"},
        "tolerations": [
            {
                "key": "gpu",
                "operator": "Equal",
                "value": "x",
                "effect": "NoExecute",
                "tolerationSeconds": 5,
            }
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "NotIn", "values": ["n"]}
                            ],
                        }
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "preference": {
                            "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}],
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["n"]}
                            ],
                        },
                    }
                ],
            },
            **{
                kind: {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "zone",
                            "labelSelector": {
                                "matchLabels": {"a": "b"},
                                "matchExpressions": [
                                    {"key": "a", "operator": "In", "values": ["b"]}
                                ],
                            },
                        }
                    ],
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 1,
                            "podAffinityTerm": {
                                "topologyKey": "zone",
                                "labelSelector": {
                                    "matchLabels": {"a": "b"},
                                    "matchExpressions": [
                                        {"key": "a", "operator": "In", "values": ["b"]}
                                    ],
                                },
                            },
                        }
                    ],
                }
                for kind in ("podAffinity", "podAntiAffinity")
            },
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 2,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "minDomains": 2,
                "labelSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                },
            }
        ],
        "runtimeClassName": "nvidia",
        "priorityClassName": "high",
        "serviceAccountName": "llm",
        "imagePullSecrets": [{"name": "registry"}],
        "terminationGracePeriodSeconds": 300,
        "sharedMemory": "8Gi",
    },
    "configRefs": [{"kind": "ConfigMap", "name": "c", "onChange": "Ignore"}],
    "preflight": {
        "mode": "Warn",
        "image": "python:3",
        "requirements": {
            "glibcxx": ">=3.4.30",
            "cxxabi": ">=1.3.13",
            "glibc": ">=2.34",
            "cudaDriver": ">=550.54.14",
            "torch": ">=2.10",
            "triton": ">=3.4,<4",
            "tritonCompile": True,
            "gpu": {
                "count": 1,
                "computeCapability": ["9.0"],
                "freeMemory": "60Gi",
                "mig": "Disabled",
                "eccErrors": 0,
                "xidErrors": 0,
            },
            "prefixCache": {"backend": "rust"},
            "shm": "1Gi",
            "memlock": "unlimited",
            "openFiles": 1024,
            "disk": [{"path": "/models", "free": "1Gi"}],
            "libraries": ["/opt/lib/libx.so"],
            "custom": [
                {"name": "x", "command": ["true"], "timeout": "5s", "class": "BadNode"},
            ],
        },
        "onFailure": {
            "badRevision": "Rollback",
            "badNode": "Rollback",
            "infrastructure": "Rollback",
            "maxAvoidedNodes": 4,
            "retries": 3,
        },
        "timeout": "7m",
    },
    "warmup": {
        "source": {"promptSet": {"configMapName": "warm", "key": "other.jsonl"}},
        "steady": {"maxDelta": "0.03"},
        "budget": {"requests": 100, "maxDuration": "5m"},
        "onTimeout": "Proceed",
    },
    "traffic": {
        "provider": {
            "gatewayAPI": {
                "parentRefs": [
                    {"name": "public", "namespace": "gateways", "sectionName": "web", "port": 443}
                ],
                "hostnames": ["chat.example.com"],
                "path": "/v1",
                "timeouts": {"request": "10m"},
            }
        },
        "affinity": {"type": "Header", "header": {"name": "x-session-id"}},
        "verify": {"maxDelay": "30s"},
        "drain": {"mode": "UntilIdle", "timeout": "5m"},
    },
    "strategy": {
        "canary": {
            "maxSurge": 2,
            "maxUnavailable": 1,
            "baseline": {"enabled": False},
            "steps": [
                {"warmup": {}},
                {"setWeight": 10},
                {"analysis": {"objectives": ["errors"]}},
                {"pause": {"duration": "1m"}},
                {"setWeight": 100},
            ],
            "bake": "3m",
            "scaleDownDelay": "1m",
        }
    },
    "analysis": {
        "mode": "Preview",
        "interval": "30s",
        "maxDuration": "2h",
        "onUndecided": "Proceed",
        "onFailure": "Pause",
        "errorRates": {"falseAbort": "0.01", "missedRegression": "0.10"},
        "source": {"prometheus": {"name": "main"}},
        "outage": {"policy": "Hold", "maxDuration": "10m", "afterMax": "Abort"},
        "objectives": [
            {
                "name": "tail",
                "metric": "E2ELatency",
                "tail": "0.95",
                "comparison": {"against": "Stable", "maxRegression": "0.5"},
                "minSamples": 50,
                "require": "NotFail",
                "steadyOnly": True,
                "blocking": False,
            },
            {"name": "p95", "metric": "TTFT", "quantile": "0.95", "slo": {"max": "2s"}},
            {"name": "errors", "metric": "ErrorRate", "slo": {"max": "0.01"}},
        ],
    },
    "disruption": {"podDisruptionBudget": {"maxUnavailable": "50%"}},
}
"""Every field of the schema with a value that is not its default, but for hit-rate comparisons."""

BLUE_GREEN: dict[str, Any] = {
    "previewReplicas": "50%",
    "autoPromote": False,
    "prePromotion": {"objectives": ["errors"]},
    "bake": "3m",
    "scaleDownDelay": "1m",
}
"""Every field of the other strategy with a value that is not its default."""

HIT_RATE = {
    "name": "hits",
    "metric": "PrefixCacheHitRate",
    "comparison": {"against": "Baseline", "maxDrop": "0.1"},
}


def full_spec() -> dict[str, Any]:
    """Return a copy of FULL."""
    return copy.deepcopy(FULL)


def resource(spec: dict[str, Any], name: str = "chat") -> dict[str, Any]:
    """Return an InferenceDeployment with this spec."""
    return {
        "apiVersion": "rampway.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def schema_paths(
    schema: dict[str, Any], path: Path_ = ()
) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Return every field below `schema` with its own schema; `[]` stands for the items of a list."""
    for name, inner in schema.get("properties", {}).items():
        yield (*path, name), inner
        yield from schema_paths(inner, (*path, name))
    items = schema.get("items")
    if isinstance(items, dict):
        yield from schema_paths(items, (*path, "[]"))


def value_paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Return the paths of every field in `value`, in the notation of `schema_paths`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*path, name)
            yield from value_paths(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from value_paths(inner, (*path, "[]"))


def without(value: Any, path: Path_) -> Any:
    """Return a copy of `value` without the field at `path`, in every item of a list on the way."""
    if isinstance(value, list):
        return [without(item, path[1:]) for item in value]
    if not isinstance(value, dict) or path[0] not in value:
        return copy.deepcopy(value)
    if len(path) == 1:
        return {k: copy.deepcopy(v) for k, v in value.items() if k != path[0]}
    return {k: without(v, path[1:]) if k == path[0] else copy.deepcopy(v) for k, v in value.items()}


def with_defaults(schema: dict[str, Any], value: Any) -> Any:
    """Return `value` as the API server stores it: defaults filled in from the top down."""
    if isinstance(value, dict):
        result = dict(value)
        for name, inner in schema.get("properties", {}).items():
            if name not in result and "default" in inner:
                result[name] = copy.deepcopy(inner["default"])
            if name in result:
                result[name] = with_defaults(inner, result[name])
        return result
    if isinstance(value, list):
        return [with_defaults(schema.get("items", {}), item) for item in value]
    return value


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as JSON Schema in which an unknown field is an error, as pruning would drop it."""
    result = {
        k: v for k, v in schema.items() if not k.startswith("x-") and k not in ("format", "default")
    }
    if "properties" in schema:
        result["properties"] = {k: closed(v) for k, v in schema["properties"].items()}
        result["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = closed(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = closed(schema["items"])
    return result


def misfits(value: Any, schema: dict[str, Any]) -> list[str]:
    """Return one line for each thing that the API server would refuse or drop."""
    validator = jsonschema.Draft202012Validator(closed(schema))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
