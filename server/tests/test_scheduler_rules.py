"""The scheduler's rules one by one, each with the smallest case that shows it."""

from __future__ import annotations

import pytest
from engine_builders import BACKENDS, Bench, expected_tokens, request_of

from rampway_server.engine.request import Phase

LONG = [7] * 40


def test_given_a_cached_prefix_when_it_is_asked_again_then_all_but_the_last_page_is_reused() -> (
    None
):
    bench = Bench()
    bench.run(request_of(LONG, 2))
    bench.run(request_of(LONG, 2))
    # 40 tokens are 10 pages, but the last token must be computed: 9 pages of 4 are reused.
    assert [a.cached_tokens for r in bench.reports for a in r.admitted] == [0, 36]


@pytest.mark.parametrize("backend", ["rust", "python"])
def test_given_equal_prompts_in_one_step_when_scheduled_then_the_prefix_is_computed_once(
    backend: str,
) -> None:
    bench = Bench(backend, max_batched_tokens=64)
    requests = [request_of(LONG, 2, arrived=float(i)) for i in range(4)]
    bench.run(*requests)
    # 40 once, then for the three others their last page of 4.
    assert sum(map(sum, bench.runner.steps)) == 40 + 3 * 4 + 4 * 1
    assert [a.cached_tokens for r in bench.reports for a in r.admitted] == [0, 36, 36, 36]


def test_given_the_cache_off_when_equal_prompts_come_then_none_waits_for_another() -> None:
    bench = Bench("off", max_batched_tokens=128)
    bench.run(*(request_of(LONG, 1) for _ in range(3)))
    assert bench.runner.steps[0] == [40, 40, 40]


def test_given_another_namespace_when_the_prompt_is_equal_then_nothing_is_shared() -> None:
    bench = Bench()
    bench.run(request_of(LONG, 1, namespace=b"tenant-a"))
    bench.run(request_of(LONG, 1, namespace=b"tenant-b"))
    assert [a.cached_tokens for r in bench.reports for a in r.admitted] == [0, 0]


def test_given_decoding_requests_when_a_long_prompt_comes_then_no_decode_step_is_skipped() -> None:
    bench = Bench(num_pages=200, max_batched_tokens=16)
    first = request_of([1, 2, 3], 12, min_new_tokens=12)
    bench.engine.submit([first])
    bench.engine.step()
    bench.run(request_of([5] * 100, 1))
    # Each step: one decode token first, the prompt's chunk in the rest of the budget.
    assert bench.runner.steps[1:7] == [[1, 15]] * 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_given_a_full_pool_when_a_decode_needs_a_page_then_the_youngest_yields_and_comes_back(
    backend: str,
) -> None:
    bench = Bench(backend, num_pages=9, max_num_seqs=2)
    old = request_of([1] * 12, 10, min_new_tokens=10, arrived=0.0)
    young = request_of([2] * 12, 10, min_new_tokens=10, arrived=1.0)
    bench.run(old, young)
    assert bench.scheduler.preemptions >= 1
    assert bench.tokens_of(old) == expected_tokens(old)
    assert bench.tokens_of(young) == expected_tokens(young)
    order = [o.request_id for o in bench.outputs() if o.finish]
    assert order == [old.id, young.id]
    # Coming back is no second admission: queue time and hit rate count a request once.
    assert [a.request_id for r in bench.reports for a in r.admitted] == [old.id, young.id]
    bench.assert_nothing_is_held()


def test_given_overlap_when_a_step_is_in_flight_then_the_next_one_is_planned_and_text_is_equal() -> (
    None
):
    bench = Bench(overlap=True)
    requests = [request_of([n] * (5 + n), 12, min_new_tokens=12) for n in range(1, 5)]
    bench.engine.submit(requests)
    bench.engine.step()
    assert bench.outputs() == [], "the first result is waited for only with the second step planned"
    bench.run()
    assert [bench.tokens_of(r) for r in requests] == [expected_tokens(r) for r in requests]
    bench.engine.stop(0)
    bench.assert_nothing_is_held()


def test_given_overlap_when_a_request_in_flight_is_aborted_then_its_pages_wait_for_the_step() -> (
    None
):
    bench = Bench(overlap=True)
    request = request_of([1] * 20, 50, min_new_tokens=50)
    bench.engine.submit([request])
    bench.engine.step()
    bench.engine.step()
    bench.scheduler.abort([request.id])
    held = bench.cache.stats()
    assert held.deferred + held.protected > 0, "the step in flight still reads and writes them"
    bench.engine.step()
    bench.check()
    bench.engine.stop(0)
    bench.assert_nothing_is_held()


def test_given_a_planned_row_when_a_more_urgent_request_needs_its_pages_then_it_leaves_the_step() -> (
    None
):
    bench = Bench(num_pages=9, max_num_seqs=2)
    early = request_of([2] * 12, 10, min_new_tokens=10, arrived=0.0)
    bench.engine.submit([early])
    bench.engine.step()
    # It runs first in every step, so its row is planned when the urgent one asks for a page.
    urgent = request_of([1] * 11, 10, min_new_tokens=10, arrived=1.0, priority=-1)
    bench.run(urgent)
    assert bench.scheduler.preemptions >= 1
    assert bench.tokens_of(early) == expected_tokens(early)
    assert bench.tokens_of(urgent) == expected_tokens(urgent)
    bench.assert_nothing_is_held()


def test_given_a_full_pool_when_priorities_differ_then_the_less_urgent_yields() -> None:
    bench = Bench(num_pages=9, max_num_seqs=2)
    late_but_urgent = request_of([1] * 12, 10, min_new_tokens=10, arrived=1.0, priority=-1)
    early = request_of([2] * 12, 10, min_new_tokens=10, arrived=0.0)
    bench.run(early, late_but_urgent)
    assert [o.request_id for o in bench.outputs() if o.finish] == [late_but_urgent.id, early.id]


def test_given_waiting_requests_when_one_has_a_cached_prefix_then_it_goes_first() -> None:
    bench = Bench(max_num_seqs=1, num_pages=100)
    bench.run(request_of(LONG, 1))
    cold = request_of([9] * 40, 1, arrived=0.0)
    warm = request_of(LONG, 1, arrived=0.001)
    bench.run(cold, warm)
    assert [o.request_id for o in bench.outputs() if o.finish][1:] == [warm.id, cold.id]


def test_given_a_request_that_waited_long_when_a_warm_one_comes_then_age_wins() -> None:
    bench = Bench(max_num_seqs=1, num_pages=100)
    bench.run(request_of(LONG, 1))
    # 36 cached tokens are worth 18 ms of waiting, not a second.
    cold = request_of([9] * 40, 1, arrived=0.0)
    warm = request_of(LONG, 1, arrived=1.0)
    bench.run(cold, warm)
    assert [o.request_id for o in bench.outputs() if o.finish][1:] == [cold.id, warm.id]


def test_given_no_room_for_the_first_in_line_when_a_small_one_waits_then_it_does_not_overtake() -> (
    None
):
    bench = Bench(num_pages=17, max_num_seqs=4)
    running = request_of([1] * 40, 8, min_new_tokens=8, arrived=0.0)
    bench.engine.submit([running])
    bench.engine.step()
    big = request_of([2] * 40, 1, arrived=1.0)
    small = request_of([3] * 4, 1, arrived=2.0)
    bench.run(big, small)
    assert [o.request_id for o in bench.outputs() if o.finish] == [running.id, big.id, small.id]


def test_given_a_queued_request_when_its_queue_deadline_passes_then_it_ends_with_503() -> None:
    bench = Bench(max_num_seqs=1)
    running = request_of([1] * 4, 20, min_new_tokens=20)
    queued = request_of([2] * 4, 4, queue_deadline=5.0)
    bench.engine.submit([running, queued])
    bench.engine.step()
    bench.now = 5.0
    bench.engine.step()
    ended = [o for o in bench.outputs() if o.request_id == queued.id]
    assert [o.error.status for o in ended if o.error] == [503]
    assert queued.phase is Phase.FINISHED


def test_given_a_running_request_when_its_deadline_passes_then_it_ends_and_holds_nothing() -> None:
    bench = Bench()
    running = request_of([1] * 4, 20, min_new_tokens=20, queue_deadline=1.0, deadline=9.0)
    bench.engine.submit([running])
    bench.engine.step()
    bench.now = 5.0
    bench.engine.step()
    assert running.phase is Phase.RUNNING
    bench.now = 9.0
    bench.engine.step()
    assert [o.error.status for o in bench.outputs() if o.error] == [504]
    bench.assert_nothing_is_held()


def test_given_a_request_larger_than_the_pool_when_added_then_it_is_refused() -> None:
    bench = Bench(num_pages=5)
    assert not bench.scheduler.fits(17)
    with pytest.raises(ValueError, match="does not fit"):
        bench.scheduler.add(request_of([1] * 10, 7))


def test_given_an_unknown_or_finished_id_when_aborted_then_nothing_happens() -> None:
    bench = Bench()
    request = request_of([1] * 4, 1)
    bench.run(request)
    assert bench.scheduler.abort([request.id, 999_999]) == []
    bench.assert_nothing_is_held()


def test_given_a_prompt_in_the_middle_of_its_chunks_when_aborted_then_its_pages_are_free() -> None:
    bench = Bench(num_pages=100, max_batched_tokens=16)
    request = request_of([1] * 100, 1)
    bench.engine.submit([request])
    bench.engine.step()
    bench.engine.abort([request.id])
    bench.engine.step()
    bench.check()
    bench.assert_nothing_is_held()


def test_given_min_tokens_when_the_model_wants_to_end_then_it_may_not_yet() -> None:
    # Found by search: this prompt's first token would be the end.
    for first in range(1, 4000):
        wanted = request_of([first % 200, first // 200], 4)
        if len(expected_tokens(wanted)) == 1:
            break
    held = request_of(wanted.prompt.tolist(), 4, min_new_tokens=2)
    bench = Bench()
    bench.run(held)
    assert len(bench.tokens_of(held)) >= 2
    assert bench.tokens_of(held) == expected_tokens(held)
