"""Whatever arrives, in whatever order: the text is the prompt's, and no page is lost."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from engine_builders import BACKENDS, EOS, Bench, expected_tokens, request_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rampway_server.engine.batch import Sampling
from rampway_server.engine.request import FinishReason, Request


@dataclass(frozen=True)
class Arrival:
    prompt: tuple[int, ...]
    max_new_tokens: int
    min_new_tokens: int
    priority: int
    seed: int | None
    namespace: bytes
    steps_before: int
    aborted_after: int | None


# Two tokens only, so that prompts share prefixes of every length.
PROMPTS = st.lists(st.integers(1, 2), min_size=1, max_size=40).map(tuple)
ARRIVALS = st.builds(
    Arrival,
    prompt=PROMPTS,
    max_new_tokens=st.integers(1, 12),
    min_new_tokens=st.integers(0, 3),
    priority=st.integers(0, 1),
    seed=st.none() | st.integers(0, 2),
    namespace=st.sampled_from([b"a", b"b"]),
    steps_before=st.integers(0, 3),
    aborted_after=st.none() | st.integers(0, 6),
)


def play(bench: Bench, arrivals: list[Arrival]) -> list[tuple[Request, Arrival]]:
    played = []
    aborts: list[tuple[int, int]] = []
    step = 0

    def one_step() -> bool:
        nonlocal step
        step += 1
        bench.now += 0.01
        for due, request_id in aborts:
            if due == step:
                bench.engine.abort([request_id])
        worked = bench.engine.step()
        bench.check()
        return worked

    for arrival in arrivals:
        for _ in range(arrival.steps_before):
            one_step()
        request = request_of(
            arrival.prompt,
            arrival.max_new_tokens,
            min_new_tokens=min(arrival.min_new_tokens, arrival.max_new_tokens),
            priority=arrival.priority,
            namespace=arrival.namespace,
            arrived=bench.now,
            sampling=Sampling(
                temperature=0.0 if arrival.seed is None else 1.0, seed=arrival.seed or 0
            ),
        )
        if arrival.aborted_after is not None:
            aborts.append((step + 1 + arrival.aborted_after, request.id))
        bench.engine.submit([request])
        played.append((request, arrival))
    for _ in range(5000):
        if not one_step() and step > max((due for due, _ in aborts), default=0):
            return played
    raise AssertionError("work did not end")


@pytest.mark.parametrize(
    ("backend", "overlap"), [*((backend, False) for backend in BACKENDS), ("rust", True)]
)
@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(ARRIVALS, min_size=1, max_size=12),
    spare_pages=st.integers(0, 12),
    budget=st.integers(4, 24),
)
def test_every_request_gets_its_own_text_and_every_page_comes_back(
    backend: str, overlap: bool, arrivals: list[Arrival], spare_pages: int, budget: int
) -> None:
    # The pool holds the longest request alone and little more: preemption is the rule.
    bench = Bench(
        backend,
        num_pages=14 + spare_pages,
        max_num_seqs=4,
        max_batched_tokens=budget,
        overlap=overlap,
    )
    for request, arrival in play(bench, arrivals):
        tokens = bench.tokens_of(request)
        expected = expected_tokens(request)
        if arrival.aborted_after is None:
            assert tokens == expected
            last = [o for o in bench.outputs() if o.request_id == request.id][-1]
            stopped = expected[-1] == EOS and len(expected) >= request.min_new_tokens
            assert last.finish is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        else:
            assert tokens == expected[: len(tokens)]
    bench.engine.stop(0)
    bench.assert_nothing_is_held()


@settings(max_examples=40, deadline=None)
@given(arrivals=st.lists(ARRIVALS, min_size=1, max_size=10))
def test_a_request_counts_its_cached_tokens_once_however_often_it_is_preempted(
    arrivals: list[Arrival],
) -> None:
    bench = Bench(num_pages=14, max_num_seqs=4)
    played = play(bench, arrivals)
    admitted = [a for report in bench.reports for a in report.admitted]
    assert len({a.request_id for a in admitted}) == len(admitted)
    by_id = {request.id: request for request, _ in played}
    for event in admitted:
        assert event.prompt_tokens == by_id[event.request_id].prompt_length
        # The last prompt token is always computed: it makes the first logits.
        assert 0 <= event.cached_tokens < event.prompt_tokens


@settings(max_examples=40, deadline=None)
@given(arrivals=st.lists(ARRIVALS, min_size=1, max_size=10), budget=st.integers(4, 24))
def test_no_step_is_larger_than_its_budget(arrivals: list[Arrival], budget: int) -> None:
    bench = Bench(num_pages=40, max_num_seqs=4, max_batched_tokens=budget)
    play(bench, arrivals)
    assert all(sum(step) <= budget and len(step) <= 4 for step in bench.runner.steps)
