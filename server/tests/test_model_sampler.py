"""Drawing tokens: filters and penalties against plain formulas, frequencies, and what a seed promises."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_builders import row

from rampway_server.engine.batch import Row, Sample, Sampling
from rampway_server.kernels import reference
from rampway_server.model.sampler import draw, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOGITS = [1.0, 3.0, 2.0, 3.0, -1.0, 0.5]


def drawn(
    logits: list[float], sampling: Sampling, *, position: int = 1, **ids: list[int]
) -> Sample:
    one = row([0] * position, [1], sampling=sampling)
    arrays = {name: np.array(value, np.int32) for name, value in ids.items()}
    (sample,) = draw(torch.tensor([logits]), [replace(one, **arrays)], reference)
    return sample


def counts(logits: list[float], sampling: Sampling, times: int = 3000) -> Counter[int]:
    rows = [row([0], [1], sampling=replace(sampling, seed=seed)) for seed in range(times)]
    samples = draw(torch.tensor([logits]).repeat(times, 1), rows, reference)
    return Counter(sample.token for sample in samples)


def test_given_a_tie_when_greedy_then_the_lowest_token_is_drawn() -> None:
    assert drawn(LOGITS, Sampling(temperature=0.0)).token == 1
    assert drawn([0.0] * 50_000, Sampling(temperature=0.0)).token == 0


def test_given_temperature_when_drawn_often_then_frequencies_follow_the_softmax() -> None:
    found = counts(LOGITS, Sampling(temperature=0.7))
    expected = torch.softmax(torch.tensor(LOGITS) / 0.7, 0).tolist()
    for token, share in enumerate(expected):
        assert abs(found[token] / 3000 - share) < 4 * math.sqrt(share / 3000) + 0.001


@pytest.mark.parametrize(
    ("sampling", "kept"),
    [
        (Sampling(top_k=1), {1}),
        (Sampling(top_k=2), {1, 3}),
        (Sampling(top_k=99), {0, 1, 2, 3, 4, 5}),
        (Sampling(top_p=0.3), {1}),
        (Sampling(top_p=0.75), {1, 3}),
        (Sampling(top_p=0.0), {1}),
        (Sampling(top_k=3, top_p=0.99), {1, 2, 3}),
        (Sampling(min_p=0.5), {1, 3}),
        (Sampling(min_p=0.2), {1, 2, 3}),
        (Sampling(min_p=1.0), {1, 3}),
        (Sampling(forbidden=(1, 3, 2)), {0, 4, 5}),
        (Sampling(logit_bias=((4, 100.0),)), {4}),
        (Sampling(logit_bias=((1, -100.0), (3, -100.0)), top_k=1), {2}),
        (Sampling(temperature=0.01), {1, 3}),
    ],
)
def test_given_a_filter_when_drawn_often_then_exactly_the_kept_tokens_appear(
    sampling: Sampling, kept: set[int]
) -> None:
    assert set(counts(LOGITS, sampling, times=1000)) == kept


class Allows:
    """The mask of a vocabulary that ends before the logits do, as a padded model's does."""

    fault = ""

    def __init__(self, *tokens: int) -> None:
        self.tokens = list(tokens)
        self.behind: list[list[int]] = []

    def allowed(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        self.behind.append(generated.tolist())
        mask = np.zeros(len(LOGITS) - 1, np.bool_)
        mask[self.tokens] = True
        return mask


@pytest.mark.parametrize(
    ("more", "token"),
    [
        ({"temperature": 0.0}, 2),
        ({"temperature": 0.0, "logit_bias": ((1, 100.0), (5, 100.0))}, 2),
        ({"temperature": 0.0, "repetition_penalty": 9.0}, 0),
        ({"top_k": 1}, 2),
        ({"min_p": 0.9, "logit_bias": ((0, 50.0),)}, 0),
    ],
)
def test_given_a_grammar_when_drawn_then_nothing_brings_back_what_it_forbids(
    more: dict[str, Any], token: int
) -> None:
    mask = Allows(0, 2)
    sampling = Sampling(mask=mask, logprobs=2, **more)
    sample = drawn(LOGITS, sampling, prompt_ids=[4], generated_ids=[2, 2])
    assert sample.token == token
    assert mask.behind == [[2, 2]]
    assert [at for at, _ in sample.top] == [1, 3], "reported is what the model thinks"


def test_given_a_wide_vocabulary_when_top_p_needs_more_than_its_head_then_it_is_exact() -> None:
    # 1000 equal tokens and 1000 impossible ones: top-p 0.5 keeps 500 of the equal ones.
    logits = [0.0] * 1000 + [-1e9] * 1000
    kept = set(counts(logits, Sampling(top_p=0.5), times=4000))
    assert len(kept) == pytest.approx(500, abs=5)
    assert max(kept) < 1000


def test_given_penalties_when_adjusted_then_the_drawn_order_follows_the_formulas() -> None:
    greedy = Sampling(temperature=0.0)
    # Repetition: positive logits are divided, negative multiplied, prompt and output alike.
    assert (
        drawn(
            LOGITS, replace(greedy, repetition_penalty=2.0), prompt_ids=[1], generated_ids=[]
        ).token
        == 3
    )
    assert (
        drawn(
            LOGITS, replace(greedy, repetition_penalty=2.0), prompt_ids=[1], generated_ids=[3]
        ).token
        == 2
    )
    assert (
        drawn(
            [-1.0, -1.5], replace(greedy, repetition_penalty=2.0), prompt_ids=[0], generated_ids=[]
        ).token
        == 1
    )
    # Presence once, frequency for each time; the prompt does not count.
    presence = replace(greedy, presence_penalty=0.5)
    assert drawn(LOGITS, presence, prompt_ids=[1], generated_ids=[]).token == 1
    assert drawn(LOGITS, presence, generated_ids=[1]).token == 3
    frequency = replace(greedy, frequency_penalty=0.6)
    assert drawn(LOGITS, frequency, generated_ids=[1, 1, 3]).token == 3
    assert drawn(LOGITS, frequency, generated_ids=[1, 1, 3, 3]).token == 2
    assert drawn(LOGITS, frequency).token == 1


def test_given_logprobs_when_drawn_then_they_are_the_models_own() -> None:
    asked = Sampling(temperature=0.0, logprobs=3, forbidden=(1, 3), repetition_penalty=1.3)
    sample = drawn(LOGITS, asked, prompt_ids=[2], generated_ids=[])
    expected = torch.log_softmax(torch.tensor(LOGITS), 0).tolist()
    assert sample.token == 2
    assert sample.logprob == pytest.approx(expected[2])
    assert [token for token, _ in sample.top] in ([1, 3, 2], [3, 1, 2])
    assert [value for _, value in sample.top] == pytest.approx(
        [expected[1], expected[3], expected[2]]
    )
    assert drawn(LOGITS, Sampling(temperature=0.0)).logprob is None


@given(
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(1, 40),
    others=st.lists(st.integers(0, 99), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_a_seeded_row_draws_the_same_token_whatever_else_is_in_the_batch(
    seed: int, position: int, others: list[int]
) -> None:
    logits = torch.randn(1, 300, generator=torch.Generator().manual_seed(3))
    own = row([0] * position, [1], sampling=Sampling(seed=seed, top_p=0.9, top_k=50))
    alone = draw(logits.clone(), [own], reference)[0]
    rows = [row([0], [1], sampling=Sampling(seed=other)) for other in others]
    noise = torch.randn(len(others), 300)
    assert draw(torch.cat([noise, logits]), [*rows, own], reference)[-1] == alone


def test_given_one_seed_when_the_position_moves_then_numbers_look_independent() -> None:
    numbers = [uniform(seed, position) for seed in range(40) for position in range(100)]
    assert len(set(numbers)) == 4000
    assert all(0 <= number < 1 for number in numbers)
    assert np.mean(numbers) == pytest.approx(0.5, abs=0.02)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.05
    assert uniform(-1, 3) == uniform(2**64 - 1, 3)


def test_given_a_row_without_sampling_when_drawn_then_it_is_our_own_fault() -> None:
    silent: Row = row([0], [1], sampling=None)
    with pytest.raises(ValueError, match="got no sampling"):
        draw(torch.tensor([LOGITS]), [silent], reference)


def test_given_not_a_number_when_drawn_then_those_tokens_are_impossible() -> None:
    nan = float("nan")
    assert drawn([nan, 1.0, nan], Sampling(temperature=0.0)).token == 1
    assert drawn([nan, 1.0, nan], Sampling()).token == 1
    assert drawn([1.0, float("inf"), 0.0], Sampling()).token == 1


def test_given_every_token_is_forbidden_when_drawn_then_a_token_is_still_returned() -> None:
    assert drawn([1.0, 2.0], Sampling(forbidden=(0, 1))).token in (0, 1)
    assert drawn([1.0, 2.0], Sampling(temperature=0.0, forbidden=(0, 1))).token in (0, 1)
