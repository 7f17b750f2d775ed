"""Another engine's metric names: the same requests, counted the same."""

from __future__ import annotations

import pytest

from rampway_server.cache.protocol import CacheStats
from rampway_server.telemetry import Telemetry

PAGES = CacheStats(101, 20, 30, 30, 20, 0, 1, 0, 0, 0, 0, 0, 0)


def exposed(dialect: str) -> dict[str, float]:
    telemetry = Telemetry(dialect, "m")
    telemetry.prompt_tokens.inc(100)
    telemetry.cached_tokens.inc(40)
    telemetry.ttft.observe([0.03, 0.3])
    telemetry.count_request("ok")
    telemetry.count_request("error")
    telemetry.observe_engine(running=3, waiting=2, preemptions=0, pages=PAGES)
    lines = [line for line in telemetry.render().decode().splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_given_the_vllm_dialect_when_scraped_then_its_names_and_edges_hold_our_figures() -> None:
    samples = exposed("vllm")
    assert samples['vllm:num_requests_running{model_name="m"}'] == 3
    assert samples['vllm:prefix_cache_hits_total{model_name="m"}'] == 40
    assert samples['vllm:kv_cache_usage_perc{model_name="m"}'] == pytest.approx(0.5)
    success = 'vllm:request_success_total{finished_reason="error",model_name="m"}'
    assert (
        samples.get(
            success,
            samples.get('vllm:request_success_total{model_name="m",finished_reason="error"}'),
        )
        == 1
    )
    buckets = {
        k: v for k, v in samples.items() if k.startswith("vllm:time_to_first_token_seconds_b")
    }
    assert len(buckets) == 23
    assert sorted(buckets.values())[-1] == 2
    assert samples["rampway_ttft_seconds_count"] == 2


def test_given_the_sglang_dialect_when_scraped_then_its_names_hold_our_figures() -> None:
    samples = exposed("sglang")
    assert samples['sglang:num_queue_reqs{model_name="m"}'] == 2
    assert samples['sglang:num_requests_total{model_name="m"}'] == 2
    assert samples['sglang:cached_tokens_total{model_name="m"}'] == 40
    assert samples['sglang:time_to_first_token_seconds_sum{model_name="m"}'] == pytest.approx(0.33)


def test_given_no_dialect_when_scraped_then_only_our_names_are_there() -> None:
    assert b"vllm:" not in Telemetry().render()
