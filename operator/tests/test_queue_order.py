from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import run

from rampway_operator.queue import Key, WorkQueue

A, B = Key("prod", "a"), Key("prod", "b")


@pytest.fixture(autouse=True)
def _silent_log() -> None:
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())


@contextlib.asynccontextmanager
async def running(queue: WorkQueue) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        await queue.close()
        await task


def now() -> float:
    return asyncio.get_running_loop().time()


class Recorder:
    """Notes when each key is looked at; `answers` says what each look returns or raises."""

    def __init__(self, answer: Callable[[Key, int], float | None] = lambda _key, _n: None) -> None:
        self.looks: list[tuple[float, Key]] = []
        self.answer = answer
        self.takes = 0.0
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, key: Key) -> float | None:
        self.looks.append((now(), key))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.at_once -= 1
        return self.answer(key, sum(k == key for _, k in self.looks))

    def times(self, key: Key) -> list[float]:
        return [at - 1000.0 for at, k in self.looks if k == key]


def test_given_a_waiting_key_when_it_is_added_again_then_it_is_looked_at_once() -> None:
    async def scenario() -> list[float]:
        work = Recorder()
        queue = WorkQueue(work)
        for _ in range(10):
            queue.add(A)
        async with running(queue):
            await asyncio.sleep(5)
        return work.times(A)

    assert run(scenario()) == [0.0]


def test_given_a_key_being_looked_at_when_it_is_added_then_it_is_looked_at_again_afterwards() -> (
    None
):
    async def scenario() -> tuple[list[float], int]:
        work = Recorder()
        work.takes = 2.0
        queue = WorkQueue(work)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(1)
            for _ in range(5):
                queue.add(A)
            await asyncio.sleep(10)
        return work.times(A), work.most_at_once

    assert run(scenario()) == ([0.0, 2.0], 1)


def test_given_a_later_due_time_when_an_event_comes_then_the_key_is_looked_at_now_and_not_twice() -> (
    None
):
    async def scenario() -> list[float]:
        work = Recorder(lambda _key, n: 60.0 if n == 1 else None)
        queue = WorkQueue(work)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(10)
            queue.add(A)
            await asyncio.sleep(200)
        return work.times(A)

    assert run(scenario()) == [0.0, 10.0]


def test_given_a_requeue_time_when_nothing_happens_then_the_key_comes_back_after_it() -> None:
    async def scenario() -> list[float]:
        work = Recorder(lambda _key, n: 5.0 if n < 4 else None)
        queue = WorkQueue(work)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(100)
        return work.times(A)

    assert run(scenario()) == [0.0, 5.0, 10.0, 15.0]


def test_given_a_failing_look_when_retried_then_pauses_double_up_to_a_minute() -> None:
    async def scenario() -> list[float]:
        def fail(_key: Key, n: int) -> float | None:
            if n < 10:
                raise RuntimeError("no answer")
            return None

        work = Recorder(fail)
        queue = WorkQueue(work, jitter=lambda: 1.0)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(1000)
        times = work.times(A)
        return [b - a for a, b in itertools.pairwise(times)]

    assert run(scenario()) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_given_a_look_that_works_again_when_it_fails_later_then_pauses_begin_anew() -> None:
    async def scenario() -> list[float]:
        def sometimes(_key: Key, n: int) -> float | None:
            if n in {1, 2, 3, 5}:
                raise RuntimeError("no answer")
            return 100.0 if n == 4 else None

        work = Recorder(sometimes)
        queue = WorkQueue(work, jitter=lambda: 1.0)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(1000)
        return work.times(A)

    assert run(scenario()) == [0, 1, 3, 7, 107, 108]


def test_given_more_keys_than_workers_when_all_are_due_then_none_starves() -> None:
    async def scenario() -> tuple[int, int]:
        work = Recorder()
        work.takes = 1.0
        queue = WorkQueue(work, workers=3)
        async with running(queue):
            for number in range(20):
                queue.add(Key("prod", f"k{number}"))
            await asyncio.sleep(60)
        return len({key for _, key in work.looks}), work.most_at_once

    assert run(scenario()) == (20, 3)


def test_given_a_look_in_progress_when_closed_then_it_ends_and_nothing_new_starts() -> None:
    async def scenario() -> tuple[list[float], list[float], float]:
        work = Recorder()
        work.takes = 4.0
        queue = WorkQueue(work, workers=1)
        async with running(queue):
            queue.add(A)
            queue.add(B)
            await asyncio.sleep(1)
            await queue.close()
            closed_at = now() - 1000.0
            await asyncio.sleep(100)
        return work.times(A), work.times(B), closed_at

    assert run(scenario()) == ([0.0], [], 4.0)


def test_given_a_standby_when_it_collects_events_then_they_are_looked_at_once_it_runs() -> None:
    async def scenario() -> tuple[int, float, list[float]]:
        work = Recorder()
        queue = WorkQueue(work)
        queue.add(A)
        queue.add(B)
        await asyncio.sleep(30)
        depth, age = queue.depth, queue.oldest_age
        async with running(queue):
            await asyncio.sleep(1)
        return depth, age, work.times(A) + work.times(B)

    assert run(scenario()) == (2, 30.0, [30.0, 30.0])


def test_given_a_stuck_look_when_asked_then_the_longest_run_tells_it() -> None:
    async def scenario() -> tuple[float, float]:
        work = Recorder()
        work.takes = 150.0
        queue = WorkQueue(work)
        async with running(queue):
            queue.add(A)
            await asyncio.sleep(140)
            stuck = queue.longest_run
            await asyncio.sleep(20)
            return stuck, queue.longest_run

    assert run(scenario()) == (140.0, 0.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "later", "wait"]),
            st.integers(0, 3),
            st.floats(0, 20, allow_nan=False),
        ),
        max_size=40,
    ),
    st.integers(1, 3),
)
def test_given_any_history_when_it_settles_then_every_key_was_looked_at_after_its_last_add(
    history: list[tuple[str, int, float]], workers: int
) -> None:
    async def scenario() -> None:
        work = Recorder()
        work.takes = 0.7
        queue = WorkQueue(work, workers=workers)
        added: dict[Key, float] = {}
        async with running(queue):
            for what, number, seconds in history:
                key = Key("prod", f"k{number}")
                if what == "wait":
                    await asyncio.sleep(seconds)
                else:
                    queue.add_after(key, seconds if what == "later" else 0.0)
                    added[key] = now()
            await asyncio.sleep(200)
        for key, at in added.items():
            assert max(when for when, k in work.looks if k == key) >= at
        assert work.most_at_once <= workers
        by_key = [[at for at, k in work.looks if k == key] for key in added]
        assert all(b - a >= work.takes for times in by_key for a, b in itertools.pairwise(times))
        assert queue.depth == 0

    run(scenario())
