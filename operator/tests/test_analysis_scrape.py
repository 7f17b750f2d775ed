"""What a pod may answer: presets by engine, hostile input, and readings that make no window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from analysis_builders import ERRORS, HIT_RATE, P99, START

from rampway_operator.core.observed import Arm, Window
from rampway_operator.core.presets import PRESETS
from rampway_operator.core.scrape import (
    MAX_SAMPLES,
    MetricsInvalid,
    PodCounters,
    Sample,
    counters_from_families,
    missing_for,
)
from rampway_operator.core.spec import EngineType, Metric, Objective
from rampway_operator.core.windows import Dropped, pair

TTFT = "rampway_ttft_seconds"
INTERVAL = timedelta(seconds=15)


def buckets(
    name: str, counts: Mapping[str, float], labels: Mapping[str, str] | None = None
) -> list[Sample]:
    return [(f"{name}_bucket", {**(labels or {}), "le": le}, n) for le, n in counts.items()]


def rampway(scale: float = 1, **extra: float) -> list[Sample]:
    return [
        ("rampway_requests_total", {"outcome": "ok"}, 90 * scale),
        ("rampway_requests_total", {"outcome": "error"}, 2 * scale),
        ("rampway_requests_total", {"outcome": "aborted"}, 5 * scale),
        ("rampway_requests_total", {"outcome": "rejected"}, 7 * scale),
        ("rampway_prompt_tokens_total", {}, 5000 * scale),
        ("rampway_cached_tokens_total", {}, 3000 * scale),
        *buckets(TTFT, {"0.1": 50 * scale, "1.0": 80 * scale, "+Inf": 90 * scale}),
        ("process_start_time_seconds", {}, 1.7e9),
        ("rampway_kv_pages_free", {}, math.nan),
    ]


def read(
    samples: list[Sample],
    engine: EngineType = EngineType.RAMPWAY,
    uid: str = "a",
    at: datetime = START,
) -> PodCounters:
    return counters_from_families(PRESETS[engine], samples, uid=uid, at=at)


def test_given_a_rampway_scrape_when_it_is_read_then_aborted_and_rejected_requests_are_no_errors() -> (
    None
):
    found = read(rampway())
    assert (found.requests, found.errors) == (92, 2)
    assert (found.prompt_tokens, found.cached_tokens) == (5000, 3000)
    assert found.ttft is not None
    assert found.ttft.counts == (50, 80, 90)
    assert found.started_at == 1.7e9
    assert set(found.missing) == {"inter-token latency histogram", "E2E latency histogram"}


def test_given_a_vllm_scrape_when_it_is_read_then_ranks_add_up_and_client_faults_are_no_errors() -> (
    None
):
    api = {"handler": "/v1/chat/completions", "method": "POST"}
    found = read(
        [
            ("http_requests_total", {**api, "status": "2xx"}, 40),
            ("http_requests_total", {**api, "status": "4xx"}, 9),
            ("http_requests_total", {**api, "status": "5xx"}, 3),
            ("http_requests_total", {"handler": "/health", "method": "GET", "status": "5xx"}, 8),
            ("vllm:request_success_total", {"finished_reason": "stop"}, 39),
            ("vllm:prefix_cache_queries_total", {"engine": "0"}, 100),
            ("vllm:prefix_cache_queries_total", {"engine": "1"}, 50),
            ("vllm:prefix_cache_hits_total", {"engine": "0"}, 60),
            *buckets("vllm:time_to_first_token_seconds", {"1.0": 2, "+Inf": 3}, {"engine": "0"}),
            *buckets("vllm:time_to_first_token_seconds", {"1.0": 4, "+Inf": 4}, {"engine": "1"}),
        ],
        EngineType.VLLM,
    )
    assert (found.requests, found.errors) == (43, 3)
    assert (found.prompt_tokens, found.cached_tokens) == (150, 60)
    assert found.ttft is not None
    assert found.ttft.counts == (6, 7)


def test_given_an_old_vllm_when_it_is_read_then_the_old_names_are_found() -> None:
    found = read(
        [
            ("vllm:gpu_prefix_cache_queries", {}, 10),
            ("vllm:gpu_prefix_cache_hits", {}, 4),
            ("vllm:request_success_total", {"finished_reason": "stop"}, 5),
            ("vllm:request_success_total", {"finished_reason": "abort"}, 5),
            *buckets("vllm:time_per_output_token_seconds", {"0.1": 7, "+Inf": 9}),
        ],
        EngineType.VLLM,
    )
    assert (found.prompt_tokens, found.cached_tokens) == (10, 4)
    assert (found.requests, found.errors) == (5, 0)
    assert found.inter_token is not None


def test_given_sglang_when_it_is_read_then_cache_sources_add_up_and_the_gauge_is_not_used() -> None:
    found = read(
        [
            ("sglang:prompt_tokens_total", {"is_streaming": "true"}, 100),
            ("sglang:prompt_tokens_total", {"is_streaming": "false"}, 20),
            ("sglang:cached_tokens_total", {"cache_source": "device"}, 30),
            ("sglang:cached_tokens_total", {"cache_source": "host"}, 6),
            ("sglang:cache_hit_rate", {}, 0.99),
            ("sglang:num_requests_total", {}, 12),
        ],
        EngineType.SGLANG,
    )
    assert (found.prompt_tokens, found.cached_tokens) == (120, 36)
    assert found.requests == 12
    assert found.errors is None


def test_t37_given_an_engine_without_a_metric_when_objectives_need_it_then_it_is_missing_not_zero() -> (
    None
):
    found = read(
        [
            ("trtllm_request_success_total", {"finished_reason": "stop"}, 5),
            ("trtllm_kv_cache_hit_rate", {}, 0.9),
        ],
        EngineType.TENSORRT_LLM,
    )
    assert found.errors is None
    assert found.cached_tokens is None
    assert missing_for((HIT_RATE, ERRORS, P99), (found,)) == (
        "errors: no errors",
        "hit-rate: no cached tokens",
        "hit-rate: no prompt tokens",
        "ttft-p99: no TTFT histogram",
    )


def test_t37_given_a_misspelt_engine_type_when_its_pods_are_read_then_everything_is_missing() -> (
    None
):
    found = read(rampway(), EngineType.VLLM)
    assert len(found.missing) == 7
    e2e = Objective("e2e", Metric.E2E_LATENCY)
    assert missing_for((e2e,), (found,)) == ("e2e: no E2E latency histogram",)


def test_given_no_scrape_yet_when_missing_metrics_are_asked_then_nothing_is_said() -> None:
    assert missing_for((HIT_RATE,), ()) == ()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("index", [0, 1, 4, 5, 6, 7, 8, 9])
def test_t34_given_a_value_that_is_no_count_when_it_is_read_then_it_is_an_error(
    bad: float, index: int
) -> None:
    samples = rampway()
    samples[index] = (*samples[index][:2], bad)
    with pytest.raises(MetricsInvalid, match="finite number"):
        read(samples)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"0.1": 5, "1.0": 4, "+Inf": 9}, "not cumulative"),
        ({"0.1": 5, "1.0": 6}, r"no \+Inf bucket"),
        ({"+Inf": 9}, "has 1 buckets"),
        ({"0.1": 5, "x": 6, "+Inf": 9}, "without a usable edge"),
        ({"NaN": 5, "+Inf": 9}, "without a usable edge"),
        ({"-1": 5, "+Inf": 9}, "without a usable edge"),
        ({"0.1": 5, "0.10": 5, "+Inf": 9}, "two buckets with edge"),
        ({f"{i + 1}": 1 for i in range(600)} | {"+Inf": 1}, "has 601 buckets"),
    ],
)
def test_given_buckets_that_lie_when_they_are_read_then_it_is_an_error(
    counts: Mapping[str, float], message: str
) -> None:
    with pytest.raises(MetricsInvalid, match=message):
        read(buckets(TTFT, counts))


def test_given_a_bucket_without_an_edge_when_it_is_read_then_it_is_an_error() -> None:
    with pytest.raises(MetricsInvalid, match="usable edge"):
        read([(f"{TTFT}_bucket", {}, 4.0)])


def test_given_series_with_different_edges_when_they_are_read_then_it_is_an_error() -> None:
    samples = buckets(TTFT, {"1": 1, "+Inf": 2}, {"rank": "0"})
    samples += buckets(TTFT, {"2": 1, "+Inf": 2}, {"rank": "1"})
    with pytest.raises(MetricsInvalid, match="different bucket edges"):
        read(samples)


def test_given_a_series_twice_when_it_is_read_then_it_is_an_error() -> None:
    with pytest.raises(MetricsInvalid, match="appears twice"):
        read([("rampway_prompt_tokens_total", {}, 1.0)] * 2)


def test_given_labels_without_bounds_when_they_are_read_then_it_is_an_error() -> None:
    samples = [("x_total", {"session": str(i)}, 1.0) for i in range(MAX_SAMPLES + 1)]
    with pytest.raises(MetricsInvalid, match="too many samples"):
        read(samples)


def test_given_long_labels_when_an_error_names_them_then_it_stays_short() -> None:
    labels = {f"label{i}": "v" * 10_000 for i in range(50)}
    with pytest.raises(MetricsInvalid) as caught:
        read([("rampway_prompt_tokens_total", labels, -1.0)])
    assert len(str(caught.value)) < 600


ARMS = {"c": Arm.CANDIDATE, "b": Arm.BASELINE, "s": Arm.STABLE}


def readings(scale: float, seconds: float, uids: str = "cbs") -> dict[str, PodCounters]:
    at = START + timedelta(seconds=seconds)
    return {uid: read(rampway(scale), uid=uid, at=at) for uid in uids}


def test_given_two_readings_when_they_are_paired_then_each_arm_has_its_increase() -> None:
    found = pair(readings(1, 0), readings(3, 15), ARMS, INTERVAL)
    assert isinstance(found, Window)
    assert found.candidate.requests == 184
    assert found.candidate.errors == 4
    assert found.baseline is not None
    assert found.baseline.cached_tokens == 6000
    assert found.stable is not None
    assert found.stable.ttft is not None
    assert found.stable.ttft.counts == (100, 60, 20)
    assert (found.ended_at - found.started_at) == INTERVAL
    assert found.candidate.e2e is None


def test_t62_given_one_busy_and_three_idle_pods_when_they_are_summed_then_idle_ones_do_not_dilute() -> (
    None
):
    arms = dict.fromkeys("cdef", Arm.CANDIDATE)
    before = readings(1, 0, "cdef")
    now = readings(1, 15, "cdef") | readings(3, 15, "c")
    found = pair(before, now, arms, INTERVAL)
    assert isinstance(found, Window)
    assert found.candidate.pods == 4
    assert found.candidate.errors is not None
    assert found.candidate.errors / found.candidate.requests == pytest.approx(2 / 92)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"requests": 10.0}, "reset"),
        ({"cached_tokens": 0.0}, "reset"),
        ({"started_at": 1.8e9}, "restarted"),
        ({"sources": ()}, "names"),
        ({"errors": None}, "names"),
        ({"at": START + timedelta(seconds=31)}, "gap"),
        ({"at": START + timedelta(seconds=2)}, "read again"),
    ],
)
def test_given_a_pod_that_cannot_be_subtracted_when_it_is_paired_then_the_window_is_dropped(
    change: Mapping[str, object], reason: str
) -> None:
    now = readings(3, 15)
    now["c"] = replace(now["c"], **change)  # type: ignore[arg-type]
    found = pair(readings(1, 0), now, ARMS, INTERVAL)
    assert isinstance(found, Dropped)
    assert reason in found.reason


def test_given_a_histogram_that_fell_when_it_is_paired_then_the_window_is_dropped() -> None:
    before, now = readings(1, 0), readings(3, 15)
    low = [s for s in rampway(3) if not s[0].startswith(TTFT)]
    fewer = [*low, *buckets(TTFT, {"0.1": 49, "1.0": 240, "+Inf": 270})]
    other = [*low, *buckets(TTFT, {"0.2": 150, "1.0": 240, "+Inf": 270})]
    at = START + INTERVAL
    for samples, reason in ((fewer, "reset"), (other, "buckets changed")):
        found = pair(before, now | {"s": read(samples, uid="s", at=at)}, ARMS, INTERVAL)
        assert isinstance(found, Dropped)
        assert reason in found.reason


def test_given_another_set_of_pods_when_they_are_paired_then_the_window_is_dropped() -> None:
    before, now = readings(1, 0), readings(3, 15)
    changed = ARMS | {"b": Arm.STABLE}
    for arms, previous_arms in ((ARMS, changed), (changed, ARMS), (ARMS, {"c": Arm.CANDIDATE})):
        found = pair(before, now, arms, INTERVAL, previous_arms=previous_arms)
        assert isinstance(found, Dropped)
    assert isinstance(pair(before, now, ARMS | {"new": Arm.STABLE}, INTERVAL), Dropped)
    assert isinstance(pair(before, now, {"s": Arm.STABLE}, INTERVAL), Dropped)
    assert isinstance(pair({}, {}, {}, INTERVAL), Dropped)


def test_given_pods_without_traffic_when_they_are_paired_then_they_play_no_part() -> None:
    before = readings(1, 0) | {"old": read(rampway(9), uid="old")}
    assert isinstance(pair(before, readings(3, 15), ARMS, INTERVAL), Window)
