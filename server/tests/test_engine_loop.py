"""The engine loop: commands, failures, heartbeat, its thread and its death."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from engine_builders import Bench, FaithfulRunner, expected_tokens, request_of

from rampway_server.errors import EngineDead

if TYPE_CHECKING:
    from rampway_server.engine.batch import Batch, StepResult


class FailingRunner(FaithfulRunner):
    """A device that fails in the steps it is told to."""

    def __init__(self, *failing: int) -> None:
        super().__init__(64, 4)
        self._failing = failing

    def run(self, batch: Batch) -> StepResult:
        if batch.step in self._failing:
            raise RuntimeError("device lost")
        return super().run(batch)


def test_given_a_failing_step_when_others_follow_then_only_its_batch_fails_and_nothing_leaks() -> (
    None
):
    bench = Bench(runner=FailingRunner(2))
    lost = request_of([1] * 20, 4)
    bench.run(lost)
    assert [o.error.status for o in bench.outputs() if o.error] == [500]
    later = request_of([1] * 20, 4)
    bench.run(later)
    assert bench.tokens_of(later) == expected_tokens(later)
    bench.assert_nothing_is_held()


def test_given_a_failing_step_when_its_prefix_is_asked_again_then_it_was_never_cached() -> None:
    bench = Bench(runner=FailingRunner(1))
    bench.run(request_of([1] * 20, 4))
    bench.run(request_of([1] * 20, 4))
    assert bench.reports[-1].pages.matched_tokens == 0


def test_given_three_failing_steps_in_a_row_when_stepping_then_the_engine_dies() -> None:
    bench = Bench(runner=FailingRunner(1, 2, 3))
    for _ in range(2):
        bench.run(request_of([1] * 4, 1))
    with pytest.raises(EngineDead, match="device lost"):
        bench.run(request_of([1] * 4, 1))


def test_given_failing_steps_far_apart_when_stepping_then_the_engine_lives() -> None:
    bench = Bench(runner=FailingRunner(1, 2, 3, 4))
    for _ in range(4):
        bench.now += 400.0
        bench.run(request_of([1] * 4, 1))
    bench.run(request_of([1] * 4, 1))
    bench.assert_nothing_is_held()


def test_given_the_last_request_when_aborted_then_the_report_shows_what_is_free_now() -> None:
    bench = Bench()
    request = request_of([1] * 20, 50, min_new_tokens=50)
    bench.engine.submit([request])
    bench.engine.step()
    assert bench.reports[-1].running == 1
    bench.engine.abort([request.id])
    bench.engine.step()
    assert (bench.reports[-1].running, bench.reports[-1].pages.owned) == (0, 0)


def test_given_cached_pages_when_the_cache_is_cleared_then_only_unused_ones_go() -> None:
    bench = Bench()
    bench.run(request_of([1] * 20, 1))
    running = request_of([2] * 20, 50, min_new_tokens=50)
    bench.engine.submit([running])
    bench.engine.step()
    done = bench.engine.clear_cache()
    bench.engine.step()
    assert done.result(timeout=0) == 5
    bench.run()
    assert bench.tokens_of(running) == expected_tokens(running)


def test_given_an_idle_engine_when_time_passes_then_its_heartbeat_is_that_old() -> None:
    bench = Bench()
    bench.now = 7.5
    assert bench.engine.heartbeat_age_seconds() == 7.5


def test_given_a_thread_when_a_request_comes_then_it_is_served_and_the_thread_can_be_stopped() -> (
    None
):
    served = threading.Event()
    bench = Bench()
    bench.engine._sink = lambda report: served.set() if report.ended else None
    bench.engine.start(lambda error: pytest.fail(repr(error)))
    bench.engine.submit([request_of([1] * 4, 1)])
    assert served.wait(10)
    bench.engine.stop(10)
    assert not bench.engine._thread.is_alive()


def test_given_a_thread_when_the_scheduler_breaks_then_the_death_is_told() -> None:
    died = threading.Event()
    bench = Bench()
    bench.engine.start(lambda error: died.set() if "boom" in str(error) else None)

    def broken(now: float) -> None:
        raise RuntimeError("boom")

    bench.scheduler.schedule = broken
    bench.engine.submit([request_of([1] * 4, 1)])
    assert died.wait(10)
    bench.engine.stop(10)
