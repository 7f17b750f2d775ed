"""Published faults around other engines' prefix caches that only a whole engine shows, by report.

Those of the cache alone are in the Rust crate's `known_bugs.rs`.
"""

from __future__ import annotations

import pytest
from engine_builders import BACKENDS, Bench, expected_tokens, request_of

CACHING = ("rust", "python")


@pytest.mark.parametrize("backend", CACHING)
def test_sglang_24590_given_a_finished_request_when_cached_then_all_but_its_last_token_is(backend):
    bench = Bench(backend)
    request = request_of(range(1, 12), 6)
    bench.run(request)
    tokens = [*range(1, 12), *bench.tokens_of(request)]
    # The last token was drawn, never computed: it has no KV.
    computed = (len(tokens) - 1) // 4 * 4
    assert bench.cache.stats().evictable * 4 == computed


@pytest.mark.parametrize("backend", CACHING)
def test_sglang_35694_given_a_request_that_its_stop_token_ends_when_cached_then_no_page_is_beyond(
    backend,
):
    """What nobody can send again, tokens drawn ahead of the stop, is a dead branch."""
    drawn = expected_tokens(request_of(range(1, 12), 40))
    stop = next(token for at, token in enumerate(drawn) if at > 8 and token not in drawn[:at])
    bench = Bench(backend)
    request = request_of(range(1, 12), 40, stop_ids=frozenset({stop}))
    bench.run(request)
    answer = bench.tokens_of(request)
    assert answer == drawn[: drawn.index(stop) + 1]
    known = 11 + len(answer)
    assert bench.cache.stats().evictable * 4 == (known - 1) // 4 * 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_vllm_37076_given_eviction_pressure_when_greedy_then_the_text_is_that_without_a_cache(
    backend,
):
    bench = Bench(backend, num_pages=20, max_num_seqs=4)
    requests = [request_of([1 + n % 3] * (5 + 7 * (n % 5)), 10) for n in range(40)]
    bench.run(*requests)
    for request in requests:
        assert bench.tokens_of(request) == expected_tokens(request)


@pytest.mark.parametrize("backend", CACHING)
def test_vllm_50702_given_a_pool_that_is_always_full_when_turned_over_then_no_text_changes(backend):
    bench = Bench(backend, num_pages=16, max_num_seqs=3)
    for turn in range(30):
        requests = [request_of([turn % 7, n, *range(10)] * 2, 12) for n in range(3)]
        bench.run(*requests)
        assert all(bench.tokens_of(r) == expected_tokens(r) for r in requests)
    stats = bench.cache.stats()
    assert stats.evicted_pages > 10 * stats.total
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("backend", CACHING)
def test_nano_vllm_211_given_a_preempted_request_when_it_hits_again_then_its_counts_are_fresh(
    backend,
):
    bench = Bench(backend, num_pages=12, max_num_seqs=3)
    requests = [request_of([n] * 12, 14) for n in range(3)]
    bench.run(*requests)
    assert bench.scheduler.preemptions > 0
    assert all(bench.tokens_of(r) == expected_tokens(r) for r in requests)
    bench.assert_nothing_is_held()


@pytest.mark.parametrize("backend", CACHING)
def test_vllm_25780_given_preempted_requests_when_they_match_their_own_pages_then_no_hit_is_told(
    backend,
):
    bench = Bench(backend, num_pages=12, max_num_seqs=3)
    requests = [request_of([n] * 12, 14) for n in range(3)]
    bench.run(*requests)
    assert bench.scheduler.preemptions > 0
    admitted = [event for report in bench.reports for event in report.admitted]
    assert [event.cached_tokens for event in admitted] == [0, 0, 0]


@pytest.mark.parametrize("backend", CACHING)
def test_neuralmagic_vllm_92_given_requests_without_room_when_they_wait_then_they_hold_nothing(
    backend,
):
    bench = Bench(backend, num_pages=8, max_num_seqs=4)
    bench.engine.submit([request_of([n] * 20, 4) for n in range(4)])
    bench.engine.step()
    assert bench.scheduler.waiting
    assert all(r.handle is None and r.used == 0 for r in bench.scheduler.waiting)
    assert bench.cache.stats().handles == len(bench.scheduler.running)


@pytest.mark.parametrize("backend", CACHING)
def test_given_a_quota_smaller_than_a_prompt_when_served_then_texts_are_right_and_the_quota_holds(
    backend,
):
    bench = Bench(backend, num_pages=40)
    bench.cache.set_quota(b"guest", 3)
    requests = [request_of([n % 2] * 30, 8, namespace=b"guest") for n in range(6)]
    bench.run(*requests)
    assert all(bench.tokens_of(r) == expected_tokens(r) for r in requests)
    assert bench.cache.quota(b"guest") == (3, 3)
    bench.assert_nothing_is_held()
