"""The metrics port: names the operator reads, edges fine enough for it, and nothing else there."""

from __future__ import annotations

import urllib.error
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from server_builders import ServerProcess, serving

from rampway_server.cache.off import NoPrefixCache
from rampway_server.telemetry import TIME_EDGES, Histogram, Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

PROMPT = b'{"prompt": "the same prompt, longer than a page", "max_tokens": 5, "ignore_eos": true}'
# What the operator's preset and the dashboards rely on; renaming one is a breaking change.
NAMES = {
    'rampway_requests_total{outcome="ok"}',
    'rampway_requests_total{outcome="error"}',
    'rampway_requests_total{outcome="aborted"}',
    'rampway_requests_total{outcome="rejected"}',
    "rampway_prompt_tokens_total",
    "rampway_cached_tokens_total",
    "rampway_generated_tokens_total",
    "rampway_preemptions_total",
    "rampway_evicted_pages_total",
    "rampway_ttft_seconds_count",
    "rampway_ttft_seconds_sum",
    'rampway_ttft_seconds_bucket{le="+Inf"}',
    "rampway_inter_token_latency_seconds_count",
    "rampway_e2e_latency_seconds_count",
    "rampway_queue_seconds_count",
    "rampway_prompt_tokens_count",
    "rampway_requests_running",
    "rampway_requests_waiting",
    'rampway_pages{state="free"}',
    'rampway_pages{state="evictable"}',
    'rampway_pages{state="protected"}',
    'rampway_pages{state="owned"}',
    'rampway_pages{state="deferred"}',
    'rampway_pages{state="reserved"}',
    "rampway_engine_heartbeat_age_seconds",
    "rampway_ready",
}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as made:
        yield made


def complete(server: ServerProcess, body: bytes = PROMPT) -> None:
    url = server.url + "/v1/completions"
    urllib.request.urlopen(urllib.request.Request(url, body), timeout=10).read()


def test_given_a_server_when_scraped_then_every_name_is_there(server: ServerProcess) -> None:
    metrics = server.metrics()
    assert metrics.keys() >= NAMES
    assert any(
        name.startswith("rampway_build_info{")
        and 'device="simulated:instant"' in name
        and 'version="0.1.0"' in name
        and ('cache_backend="rust"' in name or 'cache_backend="python"' in name)
        for name in metrics
    )
    assert not any("_created" in name for name in metrics)


def test_given_two_equal_requests_when_scraped_then_the_counters_moved_by_what_they_did(
    server: ServerProcess,
) -> None:
    before = server.metrics()
    complete(server)
    complete(server)
    after = server.metrics()

    def moved(name: str) -> float:
        return after[name] - before[name]

    assert moved('rampway_requests_total{outcome="ok"}') == 2
    assert moved("rampway_prompt_tokens_total") == 70
    assert moved("rampway_cached_tokens_total") == 32
    assert moved("rampway_generated_tokens_total") == 10
    assert moved("rampway_ttft_seconds_count") == 2
    assert moved("rampway_inter_token_latency_seconds_count") == 8
    assert moved("rampway_e2e_latency_seconds_count") == 2
    assert moved("rampway_queue_seconds_count") == 2
    assert moved("rampway_prompt_tokens_count") == 2
    states = ("free", "evictable", "protected", "owned", "deferred", "reserved")
    pages = sum(after[f'rampway_pages{{state="{state}"}}'] for state in states)
    assert pages == server.get("/server_info")["limits"]["num_pages"]


def test_given_a_client_error_when_scraped_then_no_outcome_counts_it(server: ServerProcess) -> None:
    before = server.metrics()
    with pytest.raises(urllib.error.HTTPError):
        complete(server, b'{"prompt": 5}')
    after = server.metrics()
    outcomes = [name for name in NAMES if name.startswith("rampway_requests_total")]
    assert [after[name] - before[name] for name in outcomes] == [0, 0, 0, 0]


def test_given_the_metrics_port_when_asked_for_anything_else_then_404(
    server: ServerProcess,
) -> None:
    base = server.metrics_url.removesuffix("/metrics")
    for path in ("/", "/livez", "/v1/models", "/metrics/", "/server_info"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(base + path, timeout=10)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(server.url + "/metrics", timeout=10)


def test_given_the_exposition_when_parsed_then_it_is_well_formed(server: ServerProcess) -> None:
    with urllib.request.urlopen(server.metrics_url, timeout=10) as response:
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        text = response.read().decode()
    families = list(text_string_to_metric_families(text))
    histograms = [family for family in families if family.type == "histogram"]
    assert len(histograms) == 5
    for family in histograms:
        counts = [s.value for s in family.samples if s.name.endswith("_bucket")]
        assert counts == sorted(counts)
        assert all(family.documentation for family in families)


def test_the_time_edges_are_at_most_ten_percent_apart_from_a_millisecond_to_100_seconds() -> None:
    assert TIME_EDGES[0] == 0.001
    assert TIME_EDGES[-1] == 100.0
    assert all(1 < high / low <= 1.1 for low, high in pairwise(TIME_EDGES))


@given(st.lists(st.floats(0, 200), max_size=50), st.lists(st.floats(0, 200), max_size=50))
def test_a_histogram_counts_every_value_in_the_bucket_of_its_edge(
    first: list[float], second: list[float]
) -> None:
    histogram = Histogram("h", "help", TIME_EDGES)
    histogram.observe(first)
    histogram.observe(second)
    (family,) = histogram.collect()
    for sample in family.samples:
        if sample.name == "h_bucket":
            edge = float(sample.labels["le"])
            assert sample.value == sum(value <= edge for value in [*first, *second])
    assert [s.value for s in family.samples if s.name == "h_count"] == [len(first) + len(second)]


def test_given_engine_totals_when_they_repeat_then_counters_do_not_move_twice() -> None:
    telemetry = Telemetry()
    pages = NoPrefixCache(8).stats()
    for total in (2, 2, 5):
        telemetry.observe_engine(running=1, waiting=0, preemptions=total, pages=pages)
    assert b"rampway_preemptions_total 5.0" in telemetry.render()
