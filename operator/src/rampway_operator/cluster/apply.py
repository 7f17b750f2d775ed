"""Carries actions out: the only place that changes anything but status.

It does not know why an action is wanted. Each one is safe to repeat, and guarded by UID or
resourceVersion against acting on something else than what was read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from rampway_operator.cluster.check_env_payload import check_env_base64
from rampway_operator.cluster.client import Client, Object
from rampway_operator.cluster.memory import Memory
from rampway_operator.cluster.metric_sources import read_pods
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.readings import controller_uid
from rampway_operator.cluster.resources import (
    BY_KIND,
    CONFIG_MAPS,
    INFERENCE_DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
)
from rampway_operator.cluster.smoke import SmokeTests
from rampway_operator.cluster.warmup import Tokens, Warmup
from rampway_operator.core import names
from rampway_operator.core.actions import (
    Action,
    ClearCommand,
    CreateObject,
    DeleteObject,
    DeletePod,
    LabelPod,
    PatchPodDisruptionBudget,
    PatchReplicaSet,
    PatchReport,
    SendSmoke,
    SendWarmup,
)
from rampway_operator.core.objects import replica_set_patch
from rampway_operator.core.observed import Observed
from rampway_operator.core.spec import Spec
from rampway_operator.errors import Conflict, NotFound, Refused

__all__ = ["Applier"]

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Applier:
    """Carries out the actions of one tick, in order."""

    client: Client
    http: PodHttp
    smoke: SmokeTests
    memory: Memory
    spec: Spec
    observed: Observed
    wake: Callable[[], None]
    """Has the object looked at again; called when something in the background has ended."""

    async def apply(self, actions: Iterable[Action]) -> None:
        """Carry all out. One that the API server refuses does not keep the others from being done; then Refused."""
        refused: Refused | None = None
        for action in actions:
            try:
                await self._apply(action)
            except Refused as error:
                log.warning("action refused", action=type(action).__name__, error=str(error))
                refused = refused or error
            except NotFound:
                log.info("object is gone; the next look sees it", action=type(action).__name__)
        if refused is not None:
            raise refused

    async def _apply(self, action: Action) -> None:
        match action:
            case CreateObject():
                await self._create(action)
            case DeleteObject():
                await self._delete(action.kind, action.name, action.uid)
            case DeletePod():
                log.info("deleting pod", pod=action.name, reason=action.reason)
                await self._delete(PODS.kind, action.name, action.uid)
            case PatchReplicaSet():
                body = replica_set_patch(self.spec, action)
                await self.client.merge_patch(
                    REPLICA_SETS, self.observed.namespace, action.name, body
                )
            case LabelPod():
                await self._label(action)
            case PatchPodDisruptionBudget():
                await self._patch_budget(action)
            case PatchReport():
                await self._patch_report(action)
            case SendSmoke():
                port = self.spec.engine.port
                self.smoke.start(action.pod_uid, action.ip, port, self.wake)
            case SendWarmup():
                await self._warm(action)
            case ClearCommand():
                await self._clear_command(action)

    async def _create(self, action: CreateObject) -> None:
        resource, namespace = BY_KIND[action.kind], self.observed.namespace
        try:
            await self.client.create(resource, namespace, _with_payload(action.manifest))
        except Conflict:
            existing = await self.client.get(resource, namespace, action.name)
            if controller_uid(existing) != self.observed.uid:
                log.warning("name is taken by someone else", kind=action.kind, name=action.name)
                self.memory.foreign.add(f"{action.kind}/{action.name}")

    async def _delete(self, kind: str, name: str, uid: str) -> None:
        await self.client.delete(BY_KIND[kind], self.observed.namespace, name, uid=uid)

    async def _label(self, action: LabelPod) -> None:
        labels = {
            names.LABEL_ARM: action.arm.value,
            names.LABEL_ROTATION: "true" if action.in_rotation else None,
        }
        metadata: Object = {
            "resourceVersion": action.resource_version,
            "labels": labels,
            "annotations": {names.ANNOTATION_DELETION_COST: str(action.deletion_cost)},
        }
        await self.client.merge_patch(
            PODS, self.observed.namespace, action.name, {"metadata": metadata}
        )

    async def _patch_budget(self, action: PatchPodDisruptionBudget) -> None:
        spec = {
            "selector": {"matchLabels": action.selector},
            "maxUnavailable": action.max_unavailable,
        }
        await self.client.merge_patch(
            POD_DISRUPTION_BUDGETS, self.observed.namespace, action.name, {"spec": spec}
        )

    async def _patch_report(self, action: PatchReport) -> None:
        """Reports of nodes that are not in sight stay, until the API server has no room for them."""
        namespace = self.observed.namespace
        annotations = {names.ANNOTATION_REPORT: action.digest}
        report: Object = {"metadata": {"annotations": annotations}, "data": action.reports}
        try:
            await self.client.merge_patch(CONFIG_MAPS, namespace, action.name, report)
        except Refused:
            await self.client.merge_patch(CONFIG_MAPS, namespace, action.name, {"data": None})
            await self.client.merge_patch(CONFIG_MAPS, namespace, action.name, report)

    async def _warm(self, action: SendWarmup) -> None:
        pods = (action.candidate_ips, action.baseline_ips)
        if self.memory.prompts is None:
            return
        if self.memory.warmup is None or self.memory.warmup.pods != pods:
            await self.memory.close()
            self.memory.warmup = Warmup(self.http, self.spec.engine.port, pods, self._tokens)
        self.memory.warmup.start(action.max_requests, self.memory.prompts, self.wake)

    async def _tokens(self, ips: tuple[str, ...]) -> Tokens:
        """(cached, prompt) tokens counted by these pods so far; None when one of them does not say."""
        pods = [pod for pod in self.observed.pods if pod.ip in ips]
        counters, faults = await read_pods(self.http, self.spec, pods, datetime.now(UTC))
        cached = [c.cached_tokens for c in counters.values() if c.cached_tokens is not None]
        prompt = [c.prompt_tokens for c in counters.values() if c.prompt_tokens is not None]
        if faults or not len(cached) == len(prompt) == len(ips):
            return None
        return sum(cached), sum(prompt)

    async def _clear_command(self, action: ClearCommand) -> None:
        """Guarded by a fresh resourceVersion: a command that was given meanwhile stays."""
        namespace, name = self.observed.namespace, self.observed.name
        found = await self.client.get(INFERENCE_DEPLOYMENTS, namespace, name)
        annotations = found["metadata"].get("annotations") or {}
        if annotations.get(names.ANNOTATION_COMMAND) != action.value:
            return
        metadata: Object = {
            "resourceVersion": found["metadata"]["resourceVersion"],
            "annotations": {names.ANNOTATION_COMMAND: None},
        }
        await self.client.merge_patch(
            INFERENCE_DEPLOYMENTS, namespace, name, {"metadata": metadata}
        )


def _with_payload(manifest: Object) -> Object:
    """The manifest with what only the shell has: the packed check_env."""
    annotations = manifest.get("metadata", {}).get("annotations") or {}
    if annotations.get(names.ANNOTATION_PAYLOAD) != names.PAYLOAD_CHECK_ENV:
        return manifest
    filled = copy.deepcopy(manifest)
    filled["binaryData"] = {names.PAYLOAD_CHECK_ENV: check_env_base64()}
    return filled
