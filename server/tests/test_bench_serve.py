"""`bench serve`: its loads, its figures, and one run against a real server process."""

from __future__ import annotations

import json
import math

import pytest
from server_builders import serving

from rampway_server.__main__ import main
from rampway_server.bench.client import Answer
from rampway_server.bench.figures import Condition, figures_of
from rampway_server.bench.load import load_of
from rampway_server.errors import UsageError
from rampway_server.flags import build_parser

VLLM_KEYS = """date endpoint_type backend label model_id tokenizer_id num_prompts request_rate burstiness
max_concurrency duration completed failed total_input_tokens total_output_tokens request_throughput
request_goodput output_throughput total_token_throughput max_output_tokens_per_s
max_concurrent_requests mean_ttft_ms median_ttft_ms std_ttft_ms p99_ttft_ms mean_tpot_ms
median_tpot_ms std_tpot_ms p99_tpot_ms mean_itl_ms median_itl_ms std_itl_ms p99_itl_ms mean_e2el_ms
median_e2el_ms std_e2el_ms p99_e2el_ms input_lens output_lens ttfts itls generated_texts errors"""
SGLANG_KEYS = """backend dataset_name request_rate max_concurrency random_input_len random_output_len
random_range_ratio duration completed total_input_tokens total_output_tokens
total_output_tokens_retokenized request_throughput input_throughput output_throughput
total_throughput mean_e2e_latency_ms median_e2e_latency_ms std_e2e_latency_ms p99_e2e_latency_ms
mean_ttft_ms p99_ttft_ms mean_tpot_ms p99_tpot_ms mean_itl_ms p95_itl_ms max_itl_ms concurrency
accept_length"""


def args_of(*words: str):
    return build_parser().parse_args(["bench", "serve", *words])


def answer(due: float, sent: float, first: float, ended: float, tokens: int) -> Answer:
    return Answer(due, sent, ended, first, output_tokens=tokens, prompt_tokens=10)


def test_given_a_request_sent_late_when_measured_then_its_latency_counts_from_when_it_was_due() -> (
    None
):
    figures = figures_of([answer(1.0, 3.0, 3.5, 4.5, 11)], 5.0, {})
    assert figures["mean_ttft_ms"] == pytest.approx(2500)
    assert figures["mean_e2e_latency_ms"] == figures["mean_e2el_ms"] == pytest.approx(3500)
    assert figures["mean_tpot_ms"] == pytest.approx(100)
    assert figures["mean_send_delay_ms"] == pytest.approx(2000)


def test_given_objectives_when_some_requests_miss_one_then_goodput_counts_the_others() -> None:
    fast, slow = answer(0, 0, 0.1, 1.0, 10), answer(0, 0, 0.5, 1.0, 10)
    assert figures_of([fast, slow], 2.0, {"ttft": 200.0})["request_goodput"] == 0.5


def test_given_failures_when_counted_then_they_are_told_by_kind_and_measured_nowhere() -> None:
    refused = Answer(0.0, 0.0, 9.0, error="HTTP 429")
    figures = figures_of([refused, answer(0, 0, 0.1, 1.0, 10)], 1.0, {})
    assert (figures["completed"], figures["failed"]) == (1, 1)
    assert figures["errors_by_kind"] == {"HTTP 429": 1}
    assert figures["max_e2e_latency_ms"] == pytest.approx(1000)


@pytest.mark.parametrize(
    ("text", "fails"),
    [("p99_ttft_ms>99", True), ("p99_ttft_ms > 101", False), ("completed<1", False)],
)
def test_given_a_condition_when_it_holds_then_the_run_fails(text: str, fails: bool) -> None:
    assert Condition(text).holds(figures_of([answer(0, 0, 0.1, 1, 5)], 1.0, {})) is fails


def test_given_a_condition_on_nothing_measured_when_judged_then_it_fails() -> None:
    assert Condition("p99_ttft_ms>500").holds(figures_of([], 1.0, {}))


@pytest.mark.parametrize("text", ["p99>5", "p99_ttft_ms=5", ""])
def test_given_a_condition_that_makes_no_sense_when_read_then_it_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--fail-if"):
        Condition(text)


def test_given_a_rate_when_arrivals_are_drawn_then_they_have_it_and_follow_from_the_seed() -> None:
    words = ("--num-prompts", "2000", "--random-input-len", "1", "--request-rate", "50")
    load = load_of(args_of(*words))
    assert load[-1].seconds == pytest.approx(2000 / 50, rel=0.1)
    assert load == load_of(args_of(*words))
    assert load != load_of(args_of(*words, "--seed", "2"))


def test_given_shared_prefixes_when_made_then_each_group_begins_alike() -> None:
    words = ["--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "3"]
    words += ["--gsp-prompts-per-group", "4", "--gsp-system-prompt-len", "32"]
    load = load_of(args_of(*words))
    assert len(load) == 12
    assert len({one.turns[0].prompt[:32] for one in load}) == 3


def test_given_an_azure_trace_when_read_then_lengths_and_times_are_the_traces(tmp_path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.6805900,396,109\n"
    )
    words = ["--dataset-name", "azure", "--dataset-path", str(trace), "--use-trace-timestamps"]
    load = load_of(args_of(*words, "--trace-slowdown", "2"))
    assert [
        (one.seconds, len(one.turns[0].prompt), one.turns[0].output_tokens) for one in load
    ] == [
        (0.0, 374, 44),
        (8.0, 396, 109),
    ]


def test_given_a_server_when_measured_then_the_json_has_every_key_of_vllm_and_sglang(
    tmp_path, capsys
) -> None:
    out, page = tmp_path / "out.jsonl", tmp_path / "plot.html"
    load = ["--random-input-len", "40", "--random-output-len", "6", "--num-prompts", "12"]
    output = ["--output-file", str(out), "--output-details", "--goodput", "ttft:60000"]
    with serving("--served-model-name", "m") as server:
        command = ["bench", "serve", "--base-url", server.url, *load, *output]
        assert main([*command, "--plot", str(page), "--fail-if", "completed<12"]) == 0
        chat = ["--endpoint", "/v1/chat/completions", "--dataset-name", "multi-turn"]
        assert main([*command, *chat, "--num-turns", "3", "--fail-if", "cache_hit_rate<0.2"]) == 0
        assert main([*command, "--endpoint", "/generate", "--fail-if", "completed>0"]) == 1
    first, turns, native = map(json.loads, out.read_text().splitlines())
    assert set(VLLM_KEYS.split()) | set(SGLANG_KEYS.split()) <= set(first)
    assert (first["completed"], first["total_output_tokens"]) == (12, 72)
    assert first["request_goodput"] == pytest.approx(first["request_throughput"])
    assert (turns["completed"], native["completed"]) == (36, 12)
    assert native["total_input_tokens"] == 12 * 40
    assert all(math.isfinite(first[key]) for key in ("p99_ttft_ms", "mean_tpot_ms", "p99_itl_ms"))
    assert "<svg" in page.read_text()
    assert "Serving Benchmark Result" in capsys.readouterr().out
