"""The words that the operator, the cluster and people share: labels, annotations and container names.

It does not know which object carries which of them.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ANNOTATION_AVOIDED_NODES",
    "ANNOTATION_COMMAND",
    "ANNOTATION_DELETION_COST",
    "ANNOTATION_NUMBER",
    "ANNOTATION_PAYLOAD",
    "ANNOTATION_REPORT",
    "CONTAINER_CHECK",
    "CONTAINER_ENGINE",
    "LABEL_ARM",
    "LABEL_NAME",
    "LABEL_POOL",
    "LABEL_REVISION",
    "LABEL_ROTATION",
    "PAYLOAD_CHECK_ENV",
]

LABEL_NAME: Final = "rampway.dev/name"
LABEL_REVISION: Final = "rampway.dev/revision"
LABEL_POOL: Final = "rampway.dev/pool"
LABEL_ARM: Final = "rampway.dev/arm"
LABEL_ROTATION: Final = "rampway.dev/in-rotation"
"""`true` on pods that the alias Service sends traffic to; any other value or none keeps them out."""

ANNOTATION_COMMAND: Final = "rampway.dev/command"
ANNOTATION_NUMBER: Final = "rampway.dev/revision-number"
"""On ReplicaSets."""
ANNOTATION_AVOIDED_NODES: Final = "rampway.dev/avoided-nodes"
"""On ReplicaSets: comma list of the nodes that the template's affinity keeps away from."""
ANNOTATION_PAYLOAD: Final = "rampway.dev/payload"
"""On ConfigMap manifests: what the shell fills in before it creates them."""
ANNOTATION_REPORT: Final = "rampway.dev/report"
"""On report ConfigMaps: digest of the reports that were written last."""
ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

PAYLOAD_CHECK_ENV: Final = "check_env.pyz"
"""Value of ANNOTATION_PAYLOAD, and the key under `binaryData` that the packed check_env gets."""

CONTAINER_CHECK: Final = "check-env"
CONTAINER_ENGINE: Final = "engine"
