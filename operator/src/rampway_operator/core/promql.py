"""The query that reads one pod's counters from Prometheus, and its answer as the samples of one scrape.

It does not know how Prometheus is reached. What comes back is treated as hostile: bad input is an error,
never a value. Format: https://prometheus.io/docs/prometheus/latest/querying/api/ (range selectors in
instant queries give raw samples with the timestamps of their scrapes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from rampway_operator.core.presets import Preset
from rampway_operator.core.scrape import MAX_SAMPLES, MetricsInvalid, Sample

__all__ = [
    "AHEAD",
    "LOOK_BACK",
    "PodLabels",
    "Scraped",
    "all_scrapes",
    "check_age",
    "latest_scrape",
    "query",
    "series_names",
]

LOOK_BACK = 3
"""Intervals that a query looks back: a window may be two long, and its older end must be seen, too."""
AHEAD = timedelta(seconds=5)
"""How far Prometheus' clock may be ahead of ours, or a scrape may lag behind its due time."""

_TARGET = ("job", "instance")
_RENAMED = "exported_"
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|[+-]?Inf")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class PodLabels:
    """How a Prometheus labels the series of a pod: by these labels, beside `matchers` that all must hold."""

    namespace: str = "namespace"
    pod: str = "pod"
    matchers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scraped:
    """One pod's samples of one scrape, without the labels that Prometheus added to name the target."""

    at: datetime
    samples: tuple[Sample, ...]


def series_names(preset: Preset) -> tuple[str, ...]:
    """Names of all series that the preset may read, sorted; histograms as their buckets."""
    counters = {selector.name for selector in (*preset.prompt_tokens, *preset.cached_tokens)}
    for outcomes in preset.outcomes:
        counters.add(outcomes.requests.name)
        if outcomes.errors is not None:
            counters.add(outcomes.errors.name)
    histograms = {f"{name}_bucket" for name in (*preset.ttft, *preset.inter_token, *preset.e2e)}
    return tuple(sorted(counters | histograms | {"process_start_time_seconds"}))


def query(
    preset: Preset,
    labels: PodLabels,
    namespace: str,
    pod: str,
    interval: timedelta,
    look_back: int = LOOK_BACK,
) -> str:
    """PromQL for the raw samples of one pod over the last `look_back` intervals.

    Values are quoted and names escaped, so neither can end the selector; label names come from the
    operator's settings and must be label names. Raises ValueError on one that is not.
    """
    names = "|".join(_escaped(name) for name in series_names(preset))
    wanted = (("__name__", "=~", names), (labels.namespace, "=", namespace), (labels.pod, "=", pod))
    matchers = (*wanted, *((name, "=", value) for name, value in labels.matchers))
    for name, _, _ in matchers:
        if not _LABEL.fullmatch(name):
            raise ValueError(f"label name: got {name!r}, need letters, digits and underscores")
    selector = ",".join(f"{name}{sign}{_quoted(value)}" for name, sign, value in matchers)
    return f"{{{selector}}}[{math.ceil(look_back * interval.total_seconds())}s]"


def _escaped(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_:]", lambda found: "\\" + found.group(), name)


def _quoted(value: str) -> str:
    """A PromQL string. Anything but plain printable ASCII is written as an escape."""

    def written(char: str) -> str:
        if char in '\\"':
            return "\\" + char
        if " " <= char <= "~":
            return char
        return f"\\U{ord(char):08x}"

    return '"' + "".join(written(char) for char in value) + '"'


def latest_scrape(answer: Any, labels: PodLabels, pod: str) -> Scraped:
    """The newest scrape in a matrix answer. Raises MetricsInvalid on anything that cannot be trusted.

    Series whose newest sample is older than that scrape had vanished from it. A counter that fell in
    between was reset; a pod that two jobs scrape would count twice; a warning means that part of the data
    is missing: all of them are errors.
    """
    series = _series_of(answer, labels, pod)
    for metric, samples in series:
        _check_never_fell(metric["__name__"], samples)
    newest = max(samples[-1][0] for _, samples in series)
    return _scrape(
        newest, [(m, samples[-1][1]) for m, samples in series if samples[-1][0] == newest], labels
    )


def all_scrapes(answer: Any, labels: PodLabels, pod: str) -> tuple[Scraped, ...]:
    """Every scrape in a matrix answer, oldest first; for recordings, in which counters may be reset."""
    by_time: dict[float, list[tuple[Mapping[str, str], float]]] = {}
    for metric, samples in _series_of(answer, labels, pod):
        for at, value in samples:
            by_time.setdefault(at, []).append((metric, value))
    return tuple(_scrape(at, by_time[at], labels) for at in sorted(by_time))


def _scrape(
    at: float, series: Iterable[tuple[Mapping[str, str], float]], labels: PodLabels
) -> Scraped:
    added = {labels.namespace, labels.pod, *_TARGET, *(name for name, _ in labels.matchers)}
    samples = tuple((m["__name__"], _exported(m, added), value) for m, value in series)
    try:
        return Scraped(datetime.fromtimestamp(at, UTC), samples)
    except (ValueError, OverflowError, OSError):
        raise MetricsInvalid(f"sample time is no time: got {at!r}, need Unix seconds") from None


_Labelled = tuple[Mapping[str, str], list[tuple[float, float]]]
"""Labels of a series and its samples (time, value), oldest first."""


def _series_of(answer: Any, labels: PodLabels, pod: str) -> list[_Labelled]:
    """All series of the answer; they must be one target's."""
    series = [_series(item) for item in _matrix(answer)]
    if not series:
        raise MetricsInvalid(
            f"Prometheus has no samples of pod {pod}: check that it is scraped, and that its series have "
            f"the labels {labels.namespace} and {labels.pod}"
        )
    targets = {tuple(metric.get(name, "") for name in _TARGET) for metric, _ in series}
    if len(targets) > 1:
        jobs = ", ".join(sorted("/".join(target)[:80] for target in targets)[:3])
        raise MetricsInvalid(
            f"pod {pod} is scraped by {len(targets)} targets ({jobs}): need one; name its job in the "
            "source's matchers"
        )
    return series


def _exported(metric: Mapping[str, str], added: set[str]) -> dict[str, str]:
    """The labels as the pod wrote them: Prometheus puts `exported_` before one that names a target."""
    labels = {k: v for k, v in metric.items() if k != "__name__" and k not in added}
    for name in [name for name in labels if name.startswith(_RENAMED)]:
        labels[name.removeprefix(_RENAMED)] = labels.pop(name)
    return labels


def _matrix(answer: Any) -> list[Any]:
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        raise MetricsInvalid("Prometheus' answer is no success: need an object with status success")
    if answer.get("warnings"):
        raise MetricsInvalid(
            f"Prometheus warns that its answer is not complete: {str(answer['warnings'])[:150]}"
        )
    data = answer.get("data")
    if not isinstance(data, Mapping) or data.get("resultType") != "matrix":
        raise MetricsInvalid("Prometheus' answer has no matrix: need data.resultType matrix")
    result = data.get("result")
    if not isinstance(result, list):
        raise MetricsInvalid("Prometheus' answer has no series: need data.result to be a list")
    if len(result) > MAX_SAMPLES:
        raise MetricsInvalid(
            f"Prometheus answers {len(result)} series of one pod: need at most {MAX_SAMPLES}; drop labels "
            "without bounds from the engine's metrics"
        )
    return result


def _series(item: Any) -> _Labelled:
    metric = item.get("metric") if isinstance(item, Mapping) else None
    values = item.get("values") if isinstance(item, Mapping) else None
    if not isinstance(metric, Mapping) or not isinstance(metric.get("__name__"), str):
        raise MetricsInvalid("Prometheus answers a series without a name: need metric.__name__")
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in metric.items()):
        raise MetricsInvalid(f"labels of {metric['__name__'][:80]} are not text: need strings")
    if not isinstance(values, list) or not values:
        raise MetricsInvalid(f"series {metric['__name__'][:80]} has no samples: need values")
    samples = [_sample(metric["__name__"], pair) for pair in values]
    if any(later <= at for (at, _), (later, _) in pairwise(samples)):
        raise MetricsInvalid(f"samples of {metric['__name__'][:80]} are not in order of time")
    return metric, samples


def _check_never_fell(name: str, samples: Iterable[tuple[float, float]]) -> None:
    for (_, value), (_, after) in pairwise(samples):
        if after < value and name != "process_start_time_seconds":
            raise MetricsInvalid(
                f"counter {name[:80]} fell from {value:g} to {after:g}: it was reset; "
                "waiting until the reset is out of sight"
            )


def _sample(name: str, pair: Any) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise MetricsInvalid(f"sample of {name[:80]}: got {str(pair)[:60]}, need [time, value]")
    at, text = pair
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at):
        raise MetricsInvalid(f"sample time of {name[:80]}: got {str(at)[:60]}, need a number")
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        raise MetricsInvalid(
            f"sample value of {name[:80]}: got {str(text)[:60]!r}, need a number as text"
        )
    return float(at), float(text)


def check_age(at: datetime, now: datetime, interval: timedelta) -> None:
    """Raises MetricsInvalid when the newest scrape is too old for a window, or lies in the future."""
    if at > now + AHEAD:
        raise MetricsInvalid(
            f"the newest sample lies {(at - now).total_seconds():.0f} s in the future: set the clocks of "
            "Prometheus and the operator"
        )
    if now - at > 2 * interval + AHEAD:
        raise MetricsInvalid(
            f"the newest sample is {(now - at).total_seconds():.0f} s old, need at most two intervals of "
            f"{interval.total_seconds():g} s: scrape the pod more often, or set the clocks"
        )
