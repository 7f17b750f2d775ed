"""One pod's metrics at one instant, checked: counters and histograms that can be subtracted and summed.

It does not know how the text was fetched or parsed: samples come as plain (name, labels, value) tuples.
Whatever a pod answers is treated as hostile: bad input is an error, never a value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rampway_operator.core.presets import NEEDS, Outcomes, Preset, Quantity, Selector
from rampway_operator.core.spec import Objective

__all__ = [
    "MAX_EDGES",
    "MAX_SAMPLES",
    "CumulativeHistogram",
    "MetricsInvalid",
    "PodCounters",
    "Sample",
    "counters_from_families",
    "missing_for",
]

Sample = tuple[str, Mapping[str, str], float]

MAX_SAMPLES = 10_000
"""Most samples of one scrape; an engine that exports more has a label without bounds."""
MAX_EDGES = 512
"""Most buckets of one histogram; more do not fit into status while edges are planned."""


class MetricsInvalid(ValueError):
    """A scrape that cannot be trusted. The message names the series, what it had and what it needs."""


@dataclass(frozen=True, slots=True)
class CumulativeHistogram:
    """Prometheus buckets of one pod since it started: `counts[i]` observations were <= `edges[i]`."""

    edges: tuple[float, ...]
    """Ascending, seconds; the last is +inf."""
    counts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PodCounters:
    """Everything that one pod has counted since its process started, read at one instant.

    A quantity that the scrape does not have is None and named in `missing`; it is never zero instead.
    """

    uid: str
    at: datetime
    requests: float | None = None
    errors: float | None = None
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    ttft: CumulativeHistogram | None = None
    inter_token: CumulativeHistogram | None = None
    e2e: CumulativeHistogram | None = None
    started_at: float | None = None
    """Start of the process as Unix time, if exported."""
    arrived: float | None = None
    """Requests that ever reached it, answered or not; None when it does not count them."""
    in_flight: float = 0.0
    """Requests that it has not answered yet; 0 when it does not say."""
    sources: tuple[str, ...] = ()
    """The series behind the quantities; a change of name between two scrapes makes them incomparable."""

    @property
    def missing(self) -> tuple[Quantity, ...]:
        """Quantities that this scrape does not have."""
        have = {
            Quantity.REQUESTS: self.requests,
            Quantity.ERRORS: self.errors,
            Quantity.PROMPT_TOKENS: self.prompt_tokens,
            Quantity.CACHED_TOKENS: self.cached_tokens,
            Quantity.TTFT: self.ttft,
            Quantity.ITL: self.inter_token,
            Quantity.E2E: self.e2e,
        }
        return tuple(name for name, value in have.items() if value is None)


def counters_from_families(
    preset: Preset, families: Iterable[Sample], *, uid: str, at: datetime
) -> PodCounters:
    """The pod's counters by `preset`. Raises MetricsInvalid on anything that is not a sane scrape.

    `families` are the samples of all families, flattened; `at` is the instant of the scrape (UTC). Series
    that the preset does not name are not looked at, so a NaN gauge elsewhere does no harm.
    """
    series = _index(families)
    sources: list[str] = []
    requests, errors = _outcomes(series, preset.outcomes, sources)
    prompt = _counter(series, preset.prompt_tokens, sources)
    cached = _counter(series, preset.cached_tokens, sources)
    started = series.get("process_start_time_seconds")
    # Not among the sources: these two decide no verdict, and gauges come and go.
    answered = _counter(series, preset.arrived, [])
    in_flight = sum(_sum(series, Selector(gauge)) or 0.0 for gauge in preset.in_flight)
    return PodCounters(
        uid=uid,
        at=at,
        requests=requests,
        errors=errors,
        prompt_tokens=prompt,
        cached_tokens=cached,
        ttft=_histogram(series, preset.ttft, sources),
        inter_token=_histogram(series, preset.inter_token, sources),
        e2e=_histogram(series, preset.e2e, sources),
        started_at=_checked("process_start_time_seconds", started[0][1]) if started else None,
        arrived=None if answered is None else answered + in_flight,
        in_flight=in_flight,
        sources=tuple(sources),
    )


def missing_for(
    objectives: Iterable[Objective], counters: Iterable[PodCounters]
) -> tuple[str, ...]:
    """`objective: quantity` for all that an objective needs and no scraped pod has; sorted.

    Empty `counters` say nothing, so nothing is missing yet.
    """
    scraped = tuple(counters)
    if not scraped:
        return ()
    absent = set.intersection(*(set(pod.missing) for pod in scraped))
    return tuple(
        sorted(
            f"{objective.name}: no {quantity}"
            for objective in objectives
            for quantity in NEEDS[objective.metric]
            if quantity in absent
        )
    )


_Series = dict[str, list[tuple[Mapping[str, str], float]]]


def _index(families: Iterable[Sample]) -> _Series:
    """Samples by name; two samples of the same name and labels are refused, whoever wrote them."""
    series: _Series = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for count, (name, labels, value) in enumerate(families, start=1):
        if count > MAX_SAMPLES:
            raise MetricsInvalid(
                f"scrape has too many samples: got more than {MAX_SAMPLES}, need fewer; "
                "drop labels without bounds from the engine's metrics"
            )
        key = (name, frozenset(labels.items()))
        if key in seen:
            raise MetricsInvalid(f"series {_show(name, labels)} appears twice: need it once")
        seen.add(key)
        series.setdefault(name, []).append((labels, value))
    return series


def _show(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{k}="{v[:40]}"' for k, v in sorted(labels.items())[:6])
    return f"{name[:80]}{{{inner}}}"


def _checked(what: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise MetricsInvalid(f"{what} is not a count: got {value!r}, need a finite number >= 0")
    return value


def _matches(labels: Mapping[str, str], where: Sequence[tuple[str, tuple[str, ...]]]) -> bool:
    return all(labels.get(label, "").startswith(prefixes) for label, prefixes in where)


def _sum(series: _Series, selector: Selector) -> float | None:
    """None when the metric does not exist at all; 0 when it exists and nothing matches (yet)."""
    samples = series.get(selector.name)
    if samples is None:
        return None
    total = 0.0
    for labels, value in samples:
        if _matches(labels, selector.where):
            total += _checked(_show(selector.name, labels), value)
    return total


def _counter(series: _Series, alternatives: Iterable[Selector], sources: list[str]) -> float | None:
    for selector in alternatives:
        total = _sum(series, selector)
        if total is not None:
            sources.append(selector.name)
            return total
    return None


def _outcomes(
    series: _Series, alternatives: Iterable[Outcomes], sources: list[str]
) -> tuple[float | None, float | None]:
    for outcomes in alternatives:
        requests = _sum(series, outcomes.requests)
        if requests is not None:
            sources.append(outcomes.requests.name)
            return requests, None if outcomes.errors is None else _sum(series, outcomes.errors)
    return None, None


def _histogram(
    series: _Series, names: Iterable[str], sources: list[str]
) -> CumulativeHistogram | None:
    for name in names:
        samples = series.get(f"{name}_bucket")
        if samples is not None:
            sources.append(name)
            return _buckets(name, samples)
    return None


def _buckets(name: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> CumulativeHistogram:
    """Buckets summed over the other labels (engine rank, model, streaming); each set is checked alone."""
    by_labels: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
    for labels, value in samples:
        rest = frozenset(item for item in labels.items() if item[0] != "le")
        edge = _edge(name, labels)
        buckets = by_labels.setdefault(rest, {})
        if edge in buckets:
            raise MetricsInvalid(f"{name} has two buckets with edge {edge:g}: need each once")
        buckets[edge] = _checked(f"{name} bucket {edge:g}", value)
    edges: tuple[float, ...] | None = None
    totals: list[float] = []
    for buckets in by_labels.values():
        own = tuple(sorted(buckets))
        counts = [buckets[edge] for edge in own]
        _check_buckets(name, own, counts)
        if edges is None:
            edges, totals = own, counts
        elif edges != own:
            raise MetricsInvalid(
                f"{name} has series with different bucket edges: need the same edges"
            )
        else:
            totals = [a + b for a, b in zip(totals, counts, strict=True)]
    return CumulativeHistogram(edges or (), tuple(totals))


def _edge(name: str, labels: Mapping[str, str]) -> float:
    text = labels.get("le")
    try:
        edge = float(text) if text is not None else math.nan
    except ValueError:
        edge = math.nan
    if math.isnan(edge) or edge <= 0:
        raise MetricsInvalid(
            f"{name} has a bucket without a usable edge: got le={text!r}, need seconds > 0"
        )
    return edge


def _check_buckets(name: str, edges: Sequence[float], counts: Sequence[float]) -> None:
    if not math.isinf(edges[-1]):
        raise MetricsInvalid(f"{name} has no +Inf bucket: need one")
    if not 2 <= len(edges) <= MAX_EDGES:
        raise MetricsInvalid(f"{name} has {len(edges)} buckets: need 2 to {MAX_EDGES}")
    for i in range(1, len(counts)):
        if counts[i] < counts[i - 1]:
            raise MetricsInvalid(
                f"{name} is not cumulative: got {counts[i]:g} at {edges[i]:g} "
                f"after {counts[i - 1]:g} at {edges[i - 1]:g}, need counts that never fall"
            )
