"""The Kubernetes objects of an InferenceDeployment, as manifests.

It does not know which of them exist, nor how many pods there shall be. Names are functions of the
revision, so that making one twice is making it once.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Final

from rampway_operator.core import names
from rampway_operator.core.actions import PatchReplicaSet
from rampway_operator.core.config_refs import copy_name, with_copies
from rampway_operator.core.observed import Arm, Observed, Pool, ReplicaSet
from rampway_operator.core.pods import pod_template, with_avoided_nodes
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Revision

__all__ = [
    "REPORT_SUFFIX",
    "alias_service",
    "baseline_set",
    "check_env_map",
    "check_report_map",
    "child_name",
    "config_copy",
    "disruption_budget",
    "preview_name",
    "preview_service",
    "replica_set",
    "replica_set_patch",
    "report_name",
    "revision_service",
    "selector",
    "with_avoided_nodes",
]

API_VERSION: Final = "rampway.dev/v1alpha1"


def child_name(name: str, revision: str, pool: Pool = Pool.MAIN) -> str:
    """The name of a revision's objects; its baseline copies carry `-b`."""
    return f"{name}-{revision}" + ("-b" if pool is Pool.BASELINE else "")


REPORT_SUFFIX: Final = ".report"
"""A dot: no copy of a tracked ConfigMap, whatever its name, can have the name of a report."""


def report_name(name: str, revision: str) -> str:
    """The name of the ConfigMap that holds what check_env found of a revision, node by node."""
    return child_name(name, revision) + REPORT_SUFFIX


def selector(name: str, revision: str, pool: Pool) -> dict[str, str]:
    """The labels that never change in a pod's life: what selects a revision's own pods, or its copies."""
    return {
        names.LABEL_NAME: name,
        names.LABEL_REVISION: revision,
        names.LABEL_POOL: pool.value,
    }


def _metadata(
    observed: Observed, name: str, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": observed.namespace,
        "labels": {
            "app.kubernetes.io/managed-by": "rampway",
            "app.kubernetes.io/instance": observed.name,
            names.LABEL_NAME: observed.name,
            **(labels or {}),
        },
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "InferenceDeployment",
                "name": observed.name,
                "uid": observed.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def replica_set(
    spec: Spec,
    observed: Observed,
    revision: Revision,
    *,
    replicas: int,
    arm: Arm,
    in_rotation: bool,
    avoided_nodes: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The ReplicaSet of the revision that the spec describes now."""
    labels = selector(observed.name, revision.hash, Pool.MAIN)
    child = child_name(observed.name, revision.hash)
    own = replace(spec, engine=with_copies(spec.engine, spec.config_refs, child))
    template = pod_template(own, child, revision.hash, avoided_nodes)
    return _replica_set(
        observed,
        revision,
        Pool.MAIN,
        replicas,
        template,
        labels,
        arm,
        avoided_nodes,
        in_rotation=in_rotation,
    )


def baseline_set(
    observed: Observed, source: ReplicaSet, revision: Revision, replicas: int
) -> dict[str, Any]:
    """Copies of the stable revision's pods, from the template that they were made from."""
    labels = selector(observed.name, revision.hash, Pool.BASELINE)
    template = copy.deepcopy(source.template)
    return _replica_set(
        observed,
        revision,
        Pool.BASELINE,
        replicas,
        template,
        labels,
        Arm.BASELINE,
        source.template_avoided_nodes,
        in_rotation=False,
    )


def _replica_set(  # noqa: PLR0913 - the fields of one manifest
    observed: Observed,
    revision: Revision,
    pool: Pool,
    replicas: int,
    template: dict[str, Any],
    labels: dict[str, str],
    arm: Arm,
    avoided_nodes: tuple[str, ...],
    *,
    in_rotation: bool,
) -> dict[str, Any]:
    inner = template.setdefault("metadata", {})
    inner.pop("creationTimestamp", None)
    pod_labels = {**(inner.get("labels") or {}), **labels, names.LABEL_ARM: arm.value}
    pod_labels.pop(names.LABEL_ROTATION, None)
    if in_rotation:
        pod_labels[names.LABEL_ROTATION] = "true"
    inner["labels"] = {"app.kubernetes.io/instance": observed.name, **pod_labels}
    metadata = _metadata(observed, child_name(observed.name, revision.hash, pool), labels)
    metadata["annotations"] = {
        names.ANNOTATION_NUMBER: str(revision.number),
        names.ANNOTATION_AVOIDED_NODES: ",".join(avoided_nodes),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": metadata,
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def replica_set_patch(spec: Spec, action: PatchReplicaSet) -> dict[str, Any]:
    """The merge patch of exactly the living fields; the affinity only where nodes are to be avoided anew."""
    del spec  # the template of a revision never follows a later spec
    template: dict[str, Any] = {
        "metadata": {
            "labels": {
                names.LABEL_ARM: action.arm.value,
                names.LABEL_ROTATION: "true" if action.in_rotation else None,
            }
        }
    }
    metadata: dict[str, Any] = {"resourceVersion": action.resource_version}
    if action.affinity is not None:
        template["spec"] = {"affinity": action.affinity}
        metadata["annotations"] = {names.ANNOTATION_AVOIDED_NODES: ",".join(action.avoided_nodes)}
    return {"metadata": metadata, "spec": {"replicas": action.replicas, "template": template}}


def revision_service(
    spec: Spec, observed: Observed, revision: str, pool: Pool = Pool.MAIN
) -> dict[str, Any]:
    """The Service of one revision's own pods, or of its baseline copies; its selector never changes."""
    labels = selector(observed.name, revision, pool)
    return _service(spec, observed, child_name(observed.name, revision, pool), labels, labels)


def alias_service(spec: Spec, observed: Observed) -> dict[str, Any]:
    """The Service that users call: it sends traffic to every pod in rotation, whatever its revision."""
    labels = {names.LABEL_NAME: observed.name, names.LABEL_ROTATION: "true"}
    return _service(spec, observed, observed.name, labels, {})


def preview_name(name: str) -> str:
    """The name of the Service that follows the candidate of a blue-green rollout."""
    return f"{name}-preview"


def preview_service(spec: Spec, observed: Observed) -> dict[str, Any]:
    """The Service that people try a blue-green candidate by, before and after the switch.

    The arm label follows the candidate, so this selector never changes either; between rollouts it
    selects nothing.
    """
    labels = {names.LABEL_NAME: observed.name, names.LABEL_ARM: Arm.CANDIDATE.value}
    return _service(spec, observed, preview_name(observed.name), labels, {})


def _service(
    spec: Spec, observed: Observed, name: str, chosen: dict[str, str], labels: dict[str, str]
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(observed, name, labels),
        "spec": {
            "selector": chosen,
            # By name: each revision's pods may listen on another number.
            "ports": [
                {"name": "http", "port": spec.engine.port, "targetPort": "http", "protocol": "TCP"}
            ],
        },
    }


def disruption_budget(spec: Spec, observed: Observed, revision: str) -> dict[str, Any]:
    """The PodDisruptionBudget of the stable pods.

    It never covers a candidate, whose failing pod would block every node drain, and lets unhealthy pods go.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(observed, observed.name),
        "spec": {
            "maxUnavailable": spec.pdb_max_unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(observed.name, revision, Pool.MAIN)},
        },
    }


def check_env_map(observed: Observed, revision: str) -> dict[str, Any]:
    """The ConfigMap that brings check_env into a revision's pods: the same one for all their lives."""
    metadata = _metadata(observed, child_name(observed.name, revision))
    metadata["annotations"] = {names.ANNOTATION_PAYLOAD: names.PAYLOAD_CHECK_ENV}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}


def config_copy(observed: Observed, revision: str, config_map: str) -> dict[str, Any]:
    """A revision's own copy of a tracked ConfigMap: its restarted pods read what they were tried with."""
    metadata = _metadata(observed, copy_name(child_name(observed.name, revision), config_map))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        **copy.deepcopy(observed.configs[config_map]),
    }


def check_report_map(
    observed: Observed, revision: str, reports: dict[str, str], digest: str
) -> dict[str, Any]:
    """The ConfigMap with what check_env found of a revision: one JSON text a node."""
    labels = {names.LABEL_REVISION: revision}
    metadata = _metadata(observed, report_name(observed.name, revision), labels)
    metadata["annotations"] = {names.ANNOTATION_REPORT: digest}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": reports}
