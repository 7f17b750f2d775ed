"""Our figures under vLLM's or SGLang's metric names and bucket edges, for dashboards made for them.

It knows no engine: counters and gauges are read from our own families when somebody scrapes, and
histograms are fed beside ours, because edges of another series cannot be derived from ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

__all__ = ["DIALECTS", "Dialect", "families"]

_INTER_TOKEN_SGLANG = (
    *(
        0.002,
        0.004,
        0.006,
        0.008,
        0.01,
        0.015,
        0.02,
        0.025,
        0.03,
        0.035,
        0.04,
        0.06,
        0.08,
        0.1,
        0.2,
    ),
    *(0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0),
)
_LONG_SGLANG = (
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0),
    400.0,
)
_TTFT_VLLM = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_INTER_TOKEN_VLLM = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
_LATENCY_VLLM = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Names of one engine; a source is a sample of ours as the exposition writes it."""

    histograms: Mapping[str, tuple[str, tuple[float, ...]]]
    """Attribute of `Telemetry` → name there, and edges in seconds."""
    gauges: Mapping[str, str]
    counters: Mapping[str, str]
    """Name without `_total`."""
    usage: str
    """Gauge: share of the KV pool that is not free, 0 to 1."""
    outcomes: tuple[str, Mapping[str, str]]
    """Counter of requests, and the value of its label `finished_reason` by our outcome; without
    values it has no such label."""


DIALECTS = {
    # vllm/v1/metrics/loggers.py (0.11 and later): names and edges.
    "vllm": Dialect(
        histograms={
            "ttft": ("vllm:time_to_first_token_seconds", _TTFT_VLLM),
            "inter_token": ("vllm:inter_token_latency_seconds", _INTER_TOKEN_VLLM),
            "e2e": ("vllm:e2e_request_latency_seconds", _LATENCY_VLLM),
            "queue": ("vllm:request_queue_time_seconds", _LATENCY_VLLM),
        },
        gauges={
            "vllm:num_requests_running": "rampway_requests_running",
            "vllm:num_requests_waiting": "rampway_requests_waiting",
        },
        counters={
            "vllm:prompt_tokens": "rampway_prompt_tokens_total",
            "vllm:generation_tokens": "rampway_generated_tokens_total",
            "vllm:prefix_cache_queries": "rampway_prompt_tokens_total",
            "vllm:prefix_cache_hits": "rampway_cached_tokens_total",
            "vllm:num_preemptions": "rampway_preemptions_total",
        },
        usage="vllm:kv_cache_usage_perc",
        outcomes=("vllm:request_success", {"ok": "stop", "aborted": "abort", "error": "error"}),
    ),
    # python/sglang/srt/observability/metrics_collector.py (0.5.9 and later): names and edges.
    "sglang": Dialect(
        histograms={
            "ttft": ("sglang:time_to_first_token_seconds", _LONG_SGLANG),
            "inter_token": ("sglang:inter_token_latency_seconds", _INTER_TOKEN_SGLANG),
            "e2e": (
                "sglang:e2e_request_latency_seconds",
                (*_LONG_SGLANG, 600.0, 1200.0, 1800.0, 2400.0),
            ),
        },
        gauges={
            "sglang:num_running_reqs": "rampway_requests_running",
            "sglang:num_queue_reqs": "rampway_requests_waiting",
        },
        counters={
            "sglang:prompt_tokens": "rampway_prompt_tokens_total",
            "sglang:generation_tokens": "rampway_generated_tokens_total",
            "sglang:cached_tokens": "rampway_cached_tokens_total",
        },
        usage="sglang:token_usage",
        outcomes=("sglang:num_requests", {}),
    ),
}


def families(dialect: Dialect, ours: Iterable[Metric], model: str) -> Iterable[Metric]:
    """Return gauges and counters of the dialect from our families as they are now."""
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in ours
        for sample in family.samples
    }
    for name, source in dialect.gauges.items():
        yield _gauge(name, f"As {source}.", model, values[source, ()])
    pages = {
        labels[0]: value for (name, labels), value in values.items() if name == "rampway_pages"
    }
    usable = sum(pages.values()) - pages.get("reserved", 0)
    free = pages.get("free", 0) + pages.get("evictable", 0)
    yield _gauge(dialect.usage, "Used share of the pool.", model, 1 - free / (usable or free or 1))
    for name, source in dialect.counters.items():
        counter = CounterMetricFamily(name, f"As {source}.", labels=["model_name"])
        counter.add_metric([model], values[source, ()])
        yield counter
    name, reasons = dialect.outcomes
    done = {k: values["rampway_requests_total", (k,)] for k in ("ok", "aborted", "error")}
    label = ["finished_reason"] if reasons else []
    outcomes = CounterMetricFamily(name, "Requests that ended.", labels=["model_name", *label])
    if reasons:
        for outcome, value in done.items():
            outcomes.add_metric([model, reasons[outcome]], value)
    else:
        outcomes.add_metric([model], sum(done.values()))
    yield outcomes


def _gauge(name: str, text: str, model: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=["model_name"])
    gauge.add_metric([model], value)
    return gauge
