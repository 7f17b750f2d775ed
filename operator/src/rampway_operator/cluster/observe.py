"""Gathers, in one tick, everything that a decision about one InferenceDeployment may rest on.

It decides nothing and writes nothing. Only objects whose chain of controllers leads to this very
InferenceDeployment, by UID, are taken for ours.
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rampway_operator.cluster import readings
from rampway_operator.cluster.client import Client, Object
from rampway_operator.cluster.memory import Memory
from rampway_operator.cluster.metric_sources import MetricSources
from rampway_operator.cluster.metrics import WindowMemory, read_window
from rampway_operator.cluster.resources import (
    BY_KIND,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from rampway_operator.cluster.smoke import SmokeTests
from rampway_operator.cluster.warmup import PromptSetInvalid, parse_prompts
from rampway_operator.core import names
from rampway_operator.core.config_refs import config_digests, content
from rampway_operator.core.observed import Observed, WarmupProgress
from rampway_operator.core.revision import revision_hash
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase, State
from rampway_operator.errors import NotFound

__all__ = ["Observer"]

SERVICE_LABEL = "kubernetes.io/service-name"
WINDING_DOWN = frozenset({Phase.ROLLING_BACK, Phase.DRAINING})


@dataclass(frozen=True, slots=True)
class Observer:
    """Reads the cluster and the pods."""

    client: Client
    sources: MetricSources
    smoke: SmokeTests

    async def observe(
        self, found: Object, spec: Spec, state: State, memory: Memory, now: datetime
    ) -> Observed:
        """The reading of one tick; `found` is the InferenceDeployment just read."""
        observed = await self._objects(found, spec, state, memory)
        uids = {pod.uid for pod in observed.pods}
        self.smoke.keep_only(uids, memory.pod_uids)
        memory.pod_uids = uids
        observed = dataclasses.replace(
            observed,
            smoked=frozenset(uids & self.smoke.passed),
            smoke_errors={uid: self.smoke.errors[uid] for uid in uids & self.smoke.errors.keys()},
            warmup=await self._warmup(observed.namespace, spec, state, memory),
        )
        if state.rollout is None or state.phase in WINDING_DOWN:
            memory.windows = WindowMemory()
            return observed
        windows, scrape = await read_window(
            self.sources, memory.windows, spec, observed.namespace, observed.pods, now
        )
        return dataclasses.replace(observed, windows=windows, scrape=scrape)

    async def _objects(self, found: Object, spec: Spec, state: State, memory: Memory) -> Observed:
        metadata = found["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        labels = f"{names.LABEL_NAME}={name}"
        lists = self.client.list_objects
        sets, pods, services, config_maps, budgets, slices = await asyncio.gather(
            lists(REPLICA_SETS, namespace, labels=labels),
            lists(PODS, namespace, labels=labels),
            lists(SERVICES, namespace, labels=labels),
            lists(CONFIG_MAPS, namespace, labels=labels, metadata_only=True),
            lists(POD_DISRUPTION_BUDGETS, namespace, labels=labels),
            lists(ENDPOINT_SLICES, namespace, labels=f"{SERVICE_LABEL}={name}"),
        )
        configs = await self._configs(namespace, spec)
        replica_sets = [
            rs for obj in _owned(sets, uid) if (rs := readings.replica_set_from(obj)) is not None
        ]
        services, config_maps = _owned(services, uid), _owned(config_maps, uid)
        return Observed(
            name=name,
            namespace=namespace,
            uid=uid,
            generation=int(metadata.get("generation", 0)),
            resource_version=metadata["resourceVersion"],
            spec_hash=revision_hash(found, config_digests(spec.config_refs, configs)),
            state=state,
            command=(metadata.get("annotations") or {}).get(names.ANNOTATION_COMMAND),
            replica_sets=tuple(replica_sets),
            pods=readings.pods_from(pods, replica_sets),
            services=_names(services),
            config_maps=_names(config_maps),
            configs=configs,
            reports=_reports(config_maps),
            uids=_uids("Service", services) | _uids("ConfigMap", config_maps),
            pod_disruption_budget=_budget(_owned(budgets, uid)),
            routed=readings.routed_pods(slices),
            foreign=await self._foreign(namespace, uid, memory),
        )

    async def _configs(self, namespace: str, spec: Spec) -> dict[str, dict[str, Any]]:
        """Content of the tracked ConfigMaps that exist; they belong to the user and carry no label of ours."""
        found: dict[str, dict[str, Any]] = {}
        for ref in spec.config_refs:
            with suppress(NotFound):
                found[ref.name] = content(await self.client.get(CONFIG_MAPS, namespace, ref.name))
        return found

    async def _foreign(self, namespace: str, uid: str, memory: Memory) -> tuple[str, ...]:
        """Those objects that were in our way and still are."""
        for known in sorted(memory.foreign):
            kind, _, name = known.partition("/")
            try:
                obj = await self.client.get(BY_KIND[kind], namespace, name)
            except NotFound:
                memory.foreign.discard(known)
                continue
            if readings.controller_uid(obj) == uid:
                memory.foreign.discard(known)
        return tuple(sorted(memory.foreign))

    async def _warmup(
        self, namespace: str, spec: Spec, state: State, memory: Memory
    ) -> WarmupProgress:
        """The progress, and whether the prompt set can be used; the set is read while it may be needed."""
        name = spec.warmup.prompt_config_map
        if name is None or state.rollout is None or state.phase in WINDING_DOWN:
            await memory.close()
            memory.warmup = memory.prompts = None
            return WarmupProgress()
        warmup = memory.warmup
        progress = WarmupProgress()
        if warmup is not None:
            progress = dataclasses.replace(warmup.progress, pods=warmup.pods)
        try:
            config_map = await self.client.get(CONFIG_MAPS, namespace, name)
            memory.prompts = parse_prompts(
                name, spec.warmup.prompt_key, config_map.get("data") or {}
            )
        except NotFound:
            fault = f"ConfigMap {name} does not exist; create it"
        except PromptSetInvalid as error:
            fault = str(error)
        else:
            return dataclasses.replace(progress, prompts=len(memory.prompts.bodies))
        memory.prompts = None
        return dataclasses.replace(progress, prompts=0, prompts_error=fault)


def _owned(objects: list[Object], uid: str) -> list[Object]:
    return [obj for obj in objects if readings.controller_uid(obj) == uid]


def _names(objects: list[Object]) -> frozenset[str]:
    return frozenset(obj["metadata"]["name"] for obj in objects)


def _reports(config_maps: list[Object]) -> dict[str, str]:
    """Digest by name of those that hold check reports."""
    marked = ((obj["metadata"]["name"], obj["metadata"].get("annotations")) for obj in config_maps)
    return {
        name: annotations[names.ANNOTATION_REPORT]
        for name, annotations in marked
        if annotations and names.ANNOTATION_REPORT in annotations
    }


def _uids(kind: str, objects: list[Object]) -> dict[str, str]:
    return {f"{kind}/{obj['metadata']['name']}": obj["metadata"]["uid"] for obj in objects}


def _budget(budgets: list[Object]) -> tuple[str, str] | None:
    """(revision hash that it selects, maxUnavailable) of the one budget that there can be."""
    if not budgets:
        return None
    spec: dict[str, Any] = budgets[0].get("spec") or {}
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    return selected.get(names.LABEL_REVISION, ""), str(spec.get("maxUnavailable", ""))
