"""What is to be done, as data: `plan.py` returns these, `cluster/apply.py` is the only place that acts.

Every action is idempotent: done twice, or after a crash in the middle, it leads to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rampway_operator.core.observed import Arm

__all__ = [
    "Action",
    "ClearCommand",
    "CreateObject",
    "DeleteObject",
    "DeletePod",
    "LabelPod",
    "PatchPodDisruptionBudget",
    "PatchReplicaSet",
    "PatchReport",
    "SendSmoke",
    "SendWarmup",
]


@dataclass(frozen=True, slots=True)
class CreateObject:
    """Create a child by its deterministic name; an existing one of ours counts as done."""

    kind: str
    name: str
    manifest: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete a child of ours, by name and UID; a missing one counts as done."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class PatchReplicaSet:
    """Set the living fields of a ReplicaSet, guarded by the resourceVersion that was read.

    `affinity` is the whole new pod affinity, with `avoided_nodes` in it; None leaves it as it is.
    """

    name: str
    resource_version: str
    replicas: int
    arm: Arm
    in_rotation: bool
    avoided_nodes: tuple[str, ...] = ()
    affinity: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LabelPod:
    """Set a pod's arm and rotation labels and its deletion cost, guarded by its resourceVersion."""

    name: str
    resource_version: str
    arm: Arm
    in_rotation: bool
    deletion_cost: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete one pod, by name and UID, so that it is made again elsewhere or its connections end."""

    name: str
    uid: str
    reason: str


@dataclass(frozen=True, slots=True)
class PatchPodDisruptionBudget:
    """Point the PodDisruptionBudget at another revision or another bound."""

    name: str
    selector: dict[str, str]
    max_unavailable: int | str


@dataclass(frozen=True, slots=True)
class PatchReport:
    """Add check reports to a report ConfigMap, by node; those of other nodes stay."""

    name: str
    reports: dict[str, str]
    digest: str


@dataclass(frozen=True, slots=True)
class SendSmoke:
    """Ask a pod for one real token before it may count as available."""

    pod_name: str
    pod_uid: str
    ip: str


@dataclass(frozen=True, slots=True)
class SendWarmup:
    """Send the next slice of the warm-up prompts to every pod named, arms alike."""

    candidate_ips: tuple[str, ...]
    baseline_ips: tuple[str, ...]
    prompt_config_map: str
    max_requests: int


@dataclass(frozen=True, slots=True)
class ClearCommand:
    """Remove the command annotation, only if it still has this value."""

    value: str


Action = (
    CreateObject
    | DeleteObject
    | PatchReplicaSet
    | LabelPod
    | DeletePod
    | PatchPodDisruptionBudget
    | PatchReport
    | SendSmoke
    | SendWarmup
    | ClearCommand
)
