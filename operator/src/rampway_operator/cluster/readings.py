"""Kubernetes objects, as JSON, become the plain data that decisions are made from.

It does not know how objects were fetched, and trusts labels only for what they may say: who owns an
object is decided by the UIDs of its owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from rampway_operator.core import names
from rampway_operator.core.observed import (
    Arm,
    CheckState,
    InitCheck,
    ParentSeen,
    Pod,
    Pool,
    ReplicaSet,
    RouteSeen,
)
from rampway_operator.core.route import shares_of

__all__ = [
    "controller_uid",
    "endpoints_from",
    "instant",
    "pods_from",
    "replica_set_from",
    "route_from",
    "routed_pods",
]

Object = Mapping[str, Any]
E = TypeVar("E", bound=StrEnum)
SERVICE_LABEL = "kubernetes.io/service-name"
"""On EndpointSlices."""
EPOCH = datetime.fromtimestamp(0, UTC)


def controller_uid(obj: Object) -> str:
    """UID of the object's controller; empty when it has none."""
    for owner in _metadata(obj).get("ownerReferences") or []:
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    return ""


def instant(text: str | None) -> datetime | None:
    """A Kubernetes timestamp as UTC; None when there is none."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def replica_set_from(obj: Object) -> ReplicaSet | None:
    """The ReplicaSet as data; None when it lacks the labels that every one of ours has."""
    metadata, spec = _metadata(obj), obj.get("spec") or {}
    labels = metadata.get("labels") or {}
    annotations = metadata.get("annotations") or {}
    revision = labels.get(names.LABEL_REVISION)
    pool = _member(Pool, labels.get(names.LABEL_POOL))
    if not revision or pool is None:
        return None
    template = spec.get("template") or {}
    template_labels = _metadata(template).get("labels") or {}
    avoided = annotations.get(names.ANNOTATION_AVOIDED_NODES, "")
    number = annotations.get(names.ANNOTATION_NUMBER, "")
    return ReplicaSet(
        name=metadata["name"],
        uid=metadata["uid"],
        hash=revision,
        pool=pool,
        resource_version=metadata["resourceVersion"],
        replicas=int(spec.get("replicas", 1)),
        template_arm=_member(Arm, template_labels.get(names.LABEL_ARM)),
        template_in_rotation=template_labels.get(names.LABEL_ROTATION) == "true",
        template_avoided_nodes=tuple(node for node in avoided.split(",") if node),
        failure=_condition_message(obj, "ReplicaFailure", "True"),
        number=int(number) if number.isascii() and number.isdigit() else 0,
        image=_engine_image(template),
        template=dict(template),
    )


def pods_from(objects: Iterable[Object], replica_sets: Iterable[ReplicaSet]) -> tuple[Pod, ...]:
    """The pods controlled by these ReplicaSets, oldest first; all others are none of ours."""
    owners = {rs.uid: rs for rs in replica_sets}
    pods = (
        _pod_from(obj, owners[uid]) for obj in objects if (uid := controller_uid(obj)) in owners
    )
    return tuple(sorted(pods, key=lambda pod: (pod.created_at, pod.name)))


def routed_pods(slices: Iterable[Object]) -> frozenset[str]:
    """Names of the pods that these EndpointSlices send traffic to."""
    return frozenset(
        endpoint["targetRef"]["name"]
        for piece in slices
        for endpoint in piece.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        and (endpoint.get("targetRef") or {}).get("kind") == "Pod"
    )


def endpoints_from(slices: Iterable[Object], services: Iterable[str]) -> dict[str, frozenset[str]]:
    """Service to the pods that its EndpointSlices name as ready, of these Services."""
    found: dict[str, list[Object]] = {name: [] for name in services}
    for piece in slices:
        service = (_metadata(piece).get("labels") or {}).get(SERVICE_LABEL)
        if service in found:
            found[service].append(piece)
    return {name: routed_pods(pieces) for name, pieces in found.items()}


def route_from(obj: Object) -> RouteSeen:
    """An HTTPRoute as data."""
    metadata, spec = _metadata(obj), obj.get("spec") or {}
    parents = (obj.get("status") or {}).get("parents") or []
    return RouteSeen(
        uid=metadata["uid"],
        generation=int(metadata.get("generation", 0)),
        spec=dict(spec),
        weights=shares_of(spec),
        parents=tuple(_parent(parent) for parent in parents),
    )


def _parent(parent: Object) -> ParentSeen:
    """The oldest generation that a condition is about counts: all of them must have moved on."""
    conditions = {c.get("type"): c for c in parent.get("conditions") or []}
    asked = [conditions.get("Accepted", {}), conditions.get("ResolvedRefs", {})]
    generations = [int(c.get("observedGeneration") or 0) for c in asked]
    refused = [c for c in asked if c.get("status") != "True"]
    told = [str(c.get("message") or c.get("reason") or "has not answered") for c in refused]
    name = str((parent.get("parentRef") or {}).get("name", ""))
    return ParentSeen(name, min(generations), "; ".join(told))


def _pod_from(obj: Object, owner: ReplicaSet) -> Pod:
    metadata, spec, status = _metadata(obj), obj.get("spec") or {}, obj.get("status") or {}
    labels = metadata.get("labels") or {}
    ready = _condition(obj, "Ready")
    engine = _status_of(status.get("containerStatuses"), names.CONTAINER_ENGINE)
    state = engine.get("state") or {}
    is_ready = ready.get("status") == "True"
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        hash=owner.hash,
        pool=owner.pool,
        resource_version=metadata["resourceVersion"],
        created_at=instant(metadata.get("creationTimestamp")) or EPOCH,
        arm=_member(Arm, labels.get(names.LABEL_ARM)),
        node=spec.get("nodeName"),
        ip=status.get("podIP"),
        ready=is_ready,
        ready_since=instant(ready.get("lastTransitionTime")) if is_ready else None,
        deleting="deletionTimestamp" in metadata,
        in_rotation=labels.get(names.LABEL_ROTATION) == "true",
        check=_check(spec, status),
        engine_started=bool(
            "running" in state or engine.get("restartCount") or "terminated" in state
        ),
        engine_restarts=int(engine.get("restartCount") or 0),
        engine_waiting_reason=str((state.get("waiting") or {}).get("reason") or ""),
        engine_last_exit=_last_exit(engine),
        unschedulable=_condition_message(obj, "PodScheduled", "False"),
    )


def _check(spec: Object, status: Object) -> InitCheck | None:
    """Where check-env stands. A failed run counts until a later run passes: a restart hides nothing."""
    if not any(c.get("name") == names.CONTAINER_CHECK for c in spec.get("initContainers") or []):
        return None
    check = _status_of(status.get("initContainerStatuses"), names.CONTAINER_CHECK)
    state = check.get("state") or {}
    ended = state.get("terminated") or (check.get("lastState") or {}).get("terminated")
    waiting = str((state.get("waiting") or {}).get("reason") or "")
    if ended is None:
        running = state.get("running")
        if running is None:
            return InitCheck(CheckState.WAITING, waiting_reason=waiting)
        return InitCheck(CheckState.RUNNING, started_at=instant(running.get("startedAt")))
    code = int(ended.get("exitCode", -1))
    return InitCheck(
        state=CheckState.PASSED if code == 0 else CheckState.FAILED,
        exit_code=code,
        message=str(ended.get("message") or ended.get("reason") or ""),
        finished_at=instant(ended.get("finishedAt")),
        waiting_reason=waiting,
    )


def _last_exit(container: Object) -> str:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    ended = state.get("terminated") or last.get("terminated")
    if not ended:
        return ""
    message = str(ended.get("message") or "").strip()
    text = f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode')}"
    return f"{text}: {message}" if message else text


def _metadata(obj: Object) -> dict[str, Any]:
    return obj.get("metadata") or {}


def _condition(obj: Object, kind: str) -> dict[str, Any]:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind), {})


def _condition_message(obj: Object, kind: str, status: str) -> str:
    condition = _condition(obj, kind)
    if condition.get("status") != status:
        return ""
    return str(condition.get("message") or condition.get("reason") or kind)


def _status_of(statuses: list[dict[str, Any]] | None, name: str) -> dict[str, Any]:
    return next((s for s in statuses or [] if s.get("name") == name), {})


def _engine_image(template: Object) -> str:
    containers = (template.get("spec") or {}).get("containers") or []
    return str(_status_of(containers, names.CONTAINER_ENGINE).get("image", ""))


def _member(kind: type[E], value: str | None) -> E | None:
    return next((member for member in kind if member.value == value), None)
