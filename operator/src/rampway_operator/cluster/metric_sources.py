"""Reads the counters of pods from where an InferenceDeployment says: the pods themselves, or a Prometheus.

It does not know windows. A fault of one pod is reported beside the counters of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from rampway_operator.cluster.pod_http import PodHttp, PodRequestFailed
from rampway_operator.cluster.prometheus import Prometheus, PrometheusFailed
from rampway_operator.core.observed import Pod
from rampway_operator.core.presets import PRESETS
from rampway_operator.core.promql import check_age, latest_scrape, query
from rampway_operator.core.scrape import (
    MetricsInvalid,
    PodCounters,
    Sample,
    counters_from_families,
)
from rampway_operator.core.spec import Spec

__all__ = ["MetricSources", "read_pods"]

SCRAPE_SECONDS: Final = 5.0
ACCEPT: Final = "text/plain;version=0.0.4"

_Read = tuple[dict[str, PodCounters], dict[str, str]]


@dataclass(frozen=True, slots=True)
class MetricSources:
    """All that this operator can read metrics from."""

    http: PodHttp
    prometheus: Mapping[str, Prometheus] = field(default_factory=dict)
    """By the name that InferenceDeployments use."""

    async def read(self, spec: Spec, namespace: str, pods: Iterable[Pod], now: datetime) -> _Read:
        """The counters of each pod by UID from the spec's source, and by UID why a pod gave none."""
        name = spec.analysis.prometheus
        if name is None:
            return await read_pods(self.http, spec, pods, now)
        source = self.prometheus.get(name)
        if source is None:
            known = ", ".join(sorted(self.prometheus)) or "none"
            fault = f"the operator has no Prometheus source {name!r}: its settings have {known}"
            return {}, {pod.uid: fault for pod in pods}
        return await _ask_prometheus(source, spec, namespace, pods, now)

    async def close(self) -> None:
        """Close the connections."""
        await self.http.close()
        for source in self.prometheus.values():
            await source.close()


async def read_pods(http: PodHttp, spec: Spec, pods: Iterable[Pod], at: datetime) -> _Read:
    """The counters of each pod by UID as the pod itself exports them, and by UID why a pod gave none."""
    counters: dict[str, PodCounters] = {}
    faults: dict[str, str] = {}

    async def read_one(pod: Pod) -> None:
        try:
            text = await http.get(
                pod.ip or "",
                spec.engine.scrape_port,
                spec.engine.metrics_path,
                seconds=SCRAPE_SECONDS,
                accept=ACCEPT,
            )
            # Off the loop: a large answer takes a second to parse.
            counters[pod.uid] = await asyncio.to_thread(_parsed, text, spec, pod.uid, at)
        except (PodRequestFailed, MetricsInvalid) as error:
            faults[pod.uid] = f"pod {pod.name}: {error}"

    await asyncio.gather(*(read_one(pod) for pod in pods))
    return counters, faults


async def _ask_prometheus(
    source: Prometheus, spec: Spec, namespace: str, pods: Iterable[Pod], now: datetime
) -> _Read:
    """One query a pod, so that an answer stays small and one pod's fault is its own."""
    counters: dict[str, PodCounters] = {}
    faults: dict[str, str] = {}
    preset, interval = PRESETS[spec.engine.type], spec.analysis.interval
    labels = source.settings.labels

    async def ask_one(pod: Pod) -> None:
        try:
            answer = await source.query(query(preset, labels, namespace, pod.name, interval))
            scraped = await asyncio.to_thread(latest_scrape, answer, labels, pod.name)
            check_age(scraped.at, now, interval)
            counters[pod.uid] = counters_from_families(
                preset, scraped.samples, uid=pod.uid, at=scraped.at
            )
        except (PrometheusFailed, MetricsInvalid) as error:
            faults[pod.uid] = f"pod {pod.name}: {error}"

    await asyncio.gather(*(ask_one(pod) for pod in pods))
    return counters, faults


def _parsed(text: bytes, spec: Spec, uid: str, at: datetime) -> PodCounters:
    try:
        samples: list[Sample] = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text.decode("utf-8"))
            for sample in family.samples
        ]
    except Exception as error:
        # The parser was made for honest exporters and fails on others in many ways.
        raise MetricsInvalid(
            f"metrics are not in the Prometheus text format: {error!r:.150}"
        ) from None
    return counters_from_families(PRESETS[spec.engine.type], samples, uid=uid, at=at)
