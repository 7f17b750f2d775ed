"""Every metric the server exports: names, units and buckets, in this one file.

It knows neither HTTP nor the engine; the event loop feeds it once a step, nothing else does.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from rampway_server.telemetry_dialects import DIALECTS, families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from prometheus_client.core import Metric

    from rampway_server.cache.protocol import CacheStats
    from rampway_server.telemetry_dialects import Dialect

__all__ = ["CONTENT_TYPE", "OUTCOMES", "TIME_EDGES", "Histogram", "Telemetry"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OUTCOMES = ("ok", "error", "aborted", "rejected")
"""error: our fault (5xx); rejected: 429 or 503; aborted: the client left; a 4xx counts as none."""
PAGE_STATES = ("free", "evictable", "protected", "owned", "deferred", "reserved")
EDGES_PER_DECADE = 25
"""10^(1/25) = 1.0965: a quantile read from neighbouring edges is at most 10 % off."""
TIME_EDGES = tuple(
    float(f"{10 ** (k / EDGES_PER_DECADE):.4g}")
    for k in range(-3 * EDGES_PER_DECADE, 2 * EDGES_PER_DECADE + 1)
)
"""Seconds, 1 ms to 100 s."""
LENGTH_EDGES = tuple(float(2**k) for k in range(4, 18))
"""Tokens, 16 to 131,072."""


class Histogram:
    """A histogram that is fed lists; prometheus-client's costs a lock and a linear search a value."""

    def __init__(
        self, name: str, help_text: str, edges: Sequence[float], model: str | None = None
    ) -> None:
        self._name = name
        self._model = model
        """With it, the value of the one label `model_name`."""
        self.twin: Histogram | None = None
        """One of another dialect that gets the same values."""
        self._help = help_text
        self._edges = tuple(edges)
        self._labels = [f"{edge:g}" for edge in edges] + ["+Inf"]
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0

    def observe(self, values: Iterable[float]) -> None:
        """Add values; one on an edge belongs to that edge's bucket."""
        for value in values:
            self.observe_many(value, 1)

    def observe_many(self, value: float, count: int) -> None:
        """Add one value `count` times."""
        self._counts[bisect_left(self._edges, value)] += count
        self._sum += value * count
        if self.twin is not None:
            self.twin.observe_many(value, count)

    def collect(self) -> Iterable[Metric]:
        """Return the family as prometheus-client's registry wants it."""
        labels = [] if self._model is None else [self._model]
        names = ["model_name"][: len(labels)]
        family = HistogramMetricFamily(self._name, self._help, labels=names)
        buckets = list(zip(self._labels, map(float, accumulate(self._counts)), strict=True))
        family.add_metric(labels, buckets=buckets, sum_value=self._sum)
        return [family]


class Telemetry:
    """All metrics of one server process; every method is called on the event loop's thread."""

    def __init__(self, dialect: str | None = None, model: str = "") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def histogram(name: str, text: str, edges: Sequence[float] = TIME_EDGES) -> Histogram:
            made = Histogram(name, text, edges)
            registry.register(made)
            return made

        requests = counter("rampway_requests", "Generation requests by outcome.", ["outcome"])
        self._outcomes = {name: requests.labels(outcome=name) for name in OUTCOMES}
        self.prompt_tokens = counter(
            "rampway_prompt_tokens", "Prompt tokens of requests that began to run."
        )
        self.cached_tokens = counter(
            "rampway_cached_tokens", "Prompt tokens found in the prefix cache, once a request."
        )
        self.generated_tokens = counter("rampway_generated_tokens", "Tokens drawn.")
        self._preemptions = counter("rampway_preemptions", "Running requests sent back to wait.")
        self._evicted = counter("rampway_evicted_pages", "Cached pages dropped to make room.")
        self.ttft = histogram("rampway_ttft_seconds", "Arrival to first token.")
        self.inter_token = histogram(
            "rampway_inter_token_latency_seconds", "Time between two tokens of a request."
        )
        self.e2e = histogram("rampway_e2e_latency_seconds", "Arrival to last token.")
        self.queue = histogram("rampway_queue_seconds", "Arrival to first scheduling.")
        # Beside the counter `rampway_prompt_tokens_total`: two families in the text format.
        self.prompt_length = histogram("rampway_prompt_tokens", "Prompt lengths.", LENGTH_EDGES)
        self._running = gauge("rampway_requests_running", "Sequences in the running batch.")
        self._waiting = gauge("rampway_requests_waiting", "Sequences in the queue.")
        pages = gauge("rampway_pages", "KV pages by state; the states sum to the pool.", ["state"])
        self._pages = {state: pages.labels(state=state) for state in PAGE_STATES}
        self._heartbeat = gauge(
            "rampway_engine_heartbeat_age_seconds", "Seconds since the engine loop went round."
        )
        self._ready = gauge("rampway_ready", "1 when the server takes traffic, else 0.")
        self._build = gauge(
            "rampway_build_info",
            "Always 1; the labels say what runs.",
            ["version", "cache_backend", "device"],
        )
        self._seen = {"preemptions": 0, "evicted": 0}
        self._dialect = CollectorRegistry()
        """What is also shown under another engine's names; empty without `dialect`."""
        if dialect is not None:
            self._speak(DIALECTS[dialect], model)

    def _speak(self, dialect: Dialect, model: str) -> None:
        for name, (theirs, edges) in dialect.histograms.items():
            twin = Histogram(theirs, f"As {name} of ours.", edges, model)
            getattr(self, name).twin = twin
            self._dialect.register(twin)
        self._dialect.register(_Dialect(lambda: families(dialect, self.registry.collect(), model)))

    def set_build(self, *, version: str, cache_backend: str, device: str) -> None:
        """State what runs, once it is known."""
        self._build.labels(version=version, cache_backend=cache_backend, device=device).set(1)

    def watch(self, heartbeat_age: Callable[[], float], ready: Callable[[], bool]) -> None:
        """Read these at each scrape."""
        self._heartbeat.set_function(heartbeat_age)
        self._ready.set_function(lambda: float(ready()))

    def count_request(self, outcome: str) -> None:
        """Count one HTTP request that asked for text."""
        self._outcomes[outcome].inc()

    def observe_engine(
        self, *, running: int, waiting: int, preemptions: int, pages: CacheStats
    ) -> None:
        """Take a step's gauges, and the counters the engine keeps as totals."""
        self._running.set(running)
        self._waiting.set(waiting)
        for state, child in self._pages.items():
            child.set(getattr(pages, state))
        self._advance("preemptions", self._preemptions, preemptions)
        self._advance("evicted", self._evicted, pages.evicted_pages)

    def _advance(self, key: str, counter: Counter, total: int) -> None:
        if total > self._seen[key]:
            counter.inc(total - self._seen[key])
            self._seen[key] = total

    def render(self) -> bytes:
        """Return the exposition text."""
        return generate_latest(self.registry) + generate_latest(self._dialect)


class _Dialect:
    """Families that are made at each scrape, as prometheus-client's registry wants them."""

    def __init__(self, made: Callable[[], Iterable[Metric]]) -> None:
        self._made = made

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry would scrape us to find our names."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Return the families as they are now."""
        return self._made()
