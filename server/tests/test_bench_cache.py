"""The cache benchmark: what it says must follow from what it measured."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np
import pytest

from rampway_server.bench import cache as bench
from rampway_server.bench.adapters.ours import Watched
from rampway_server.bench.cache import Results
from rampway_server.bench.fleet import Fleet
from rampway_server.bench.table import claims_of, render
from rampway_server.bench.worker import Worker, opener_of
from rampway_server.bench.workloads import read_trace, text, texts_of
from rampway_server.cache.reference import PythonPrefixCache
from rampway_server.errors import UsageError


def write_trace(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def request(blocks, length):
    return {"timestamp": 0, "input_length": length, "output_length": 1, "hash_ids": blocks}


@pytest.fixture
def trace(tmp_path):
    rows = [request([1, 2], 900), request([1, 3], 1024), request([4], 16), request([1, 2], 900)]
    return write_trace(tmp_path / "conversation.jsonl", rows)


def test_given_equal_block_ids_when_texts_are_made_then_they_begin_alike_and_end_as_told(trace):
    first, second, third, again = texts_of(read_trace(trace))
    assert [len(first), len(second), len(third)] == [900, 1024, 16]
    assert np.array_equal(first[:512], second[:512])
    assert not np.array_equal(first[512:528], second[512:528])
    assert np.array_equal(first, again)


@pytest.mark.parametrize("bad", ["{", '{"timestamp": 0}', json.dumps(request([1], 513))])
def test_given_a_broken_trace_when_read_then_one_line_says_what_is_needed(tmp_path, bad):
    path = tmp_path / "broken.jsonl"
    path.write_text(bad, encoding="utf-8")
    with pytest.raises(UsageError, match="--trace cannot be read"):
        read_trace(path)
    with pytest.raises(UsageError, match="--trace cannot be read"):
        read_trace(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("name", ["rust", "rust-i64", "python"])
def test_given_our_caches_when_every_case_runs_then_each_finds_what_it_must(name, trace, tmp_path):
    if name != "python":
        pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")
    worker = Worker(opener_of(name, tmp_path))
    for case in (
        {"case": "hit", "tokens": 1024, "nodes": 4},
        {"case": "miss", "tokens": 256},
        {"case": "lock", "tokens": 256, "nodes": 2},
        {"case": "evict", "leaves": 50},
    ):
        assert isinstance(worker.answer({**case, "samples": 3})["ns"], float)
    replay = {"case": "replay", "trace": str(trace), "capacity": 4096, "limit": None, "check": True}
    answer = worker.answer(replay)
    assert answer["found"] == [0, 512, 0, 896]
    assert answer["hit_rate"] == pytest.approx((512 + 896) / (900 + 1024 + 16 + 900))
    assert len(answer["ns"]) == 4


class Miscounting(PythonPrefixCache):
    """A cache that loses a page from its counts with the first allocation."""

    def stats(self):
        counted = super().stats()
        return replace(counted, free=counted.free - (counted.owned > 0))


def test_given_a_cache_that_miscounts_when_watched_then_the_operation_is_named():
    watched = Watched(Miscounting(64, 16))
    watched.match_lock(b"", np.arange(64))
    with pytest.raises(AssertionError, match="do not add up after alloc: got 63, need 64"):
        watched.alloc(4, np.zeros(4, dtype=np.int32))


def test_given_no_peers_when_the_fleet_starts_then_each_missing_one_is_named(tmp_path):
    with Fleet(("python", "sglang-rust", "vllm"), tmp_path) as fleet:
        assert set(fleet.members) == {"python"}
        assert set(fleet.skipped) == {"sglang-rust", "vllm"}
        assert "rampway_server.bench.peers" in fleet.skipped["vllm"]
        assert fleet.ask("vllm", case="miss", tokens=256, samples=1) is None
        assert fleet.ask("python", case="nothing", samples=1) is None
        assert "python nothing" in fleet.skipped


def test_given_figures_when_judged_then_only_what_was_measured_is_claimed_and_misses_show():
    results = Results({"cores": 2}, 1)
    assert claims_of(results) == []
    results.core = {
        "hit-1": {"ns": 700.0, "floor_ns": 500.0, "nodes": 1},
        "miss": {"ns": 51.0, "floor_ns": 500.0, "nodes": 0},
    }
    results.cases = {"hit 8,192 tokens": {"rust": 1200.0, "vllm": 900_000.0}}
    results.hit_rate = {"conversation": {"rust": 0.18, "vllm": 0.17}}
    verdicts = {claim.what: claim.met for claim in claims_of(results)}
    assert verdicts == {
        "Rust: hit 8,192 in 1 node": False,
        "Rust: miss among 10": False,
        "Python: hit 8,192 tokens": True,
        "hit rate of conversation, vLLM's or more": True,
    }
    results.core["hit-1"]["ns"] = 675.0
    assert claims_of(results)[0].met
    results.skipped = {"sglang-rust": "not prepared"}
    table = render(results, claims_of(results))
    assert "skipped: sglang-rust: not prepared" in table
    assert "| NO " in table
    assert "900.00 us" in table


def test_given_the_command_line_when_parsed_then_defaults_measure_without_any_file():
    parser = argparse.ArgumentParser()
    bench.add_flags(parser)
    args = parser.parse_args([])
    assert (args.rounds, args.trace, args.core, args.fail_on_miss) == (5, [], None, False)


def test_given_one_seed_when_a_text_is_made_twice_then_it_is_the_same():
    assert np.array_equal(text(7, 100), text(7, 100))
    assert not np.array_equal(text(7, 100), text(8, 100))
