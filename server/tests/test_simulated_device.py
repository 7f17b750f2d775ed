"""The simulated device: its tokens, its clock, its shapes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from engine_builders import EOS, GREEDY
from hypothesis import given
from hypothesis import strategies as st

from rampway_server.engine.batch import Batch, Row, RunnerLimits, Sampling
from rampway_server.engine.byte_tokenizer import ByteTokenizer
from rampway_server.engine.roofline import GPUS, MODELS, Roofline, gpu_named, shape_named
from rampway_server.engine.simulated import SimulatedRunner, chain_hash, draw, next_hash
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = RunnerLimits(num_pages=600, page_size=16, context_length=8192, vocab_size=512)
LLAMA = MODELS["llama-3-8b"]


def row_of(tokens: int, start: int = 0) -> Row:
    pages = np.arange(1, -(-(start + tokens) // 16) + 1, dtype=np.int32)
    return Row(np.arange(tokens, dtype=np.int32), start, pages, GREEDY)


class Clock:
    """Virtual time: sleeping moves it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def runner_with(clock: Clock, speed: float = 1.0, gpu: str = "h100") -> SimulatedRunner:
    roofline = Roofline(LLAMA, GPUS[gpu], speed)
    return SimulatedRunner(LIMITS, EOS, roofline, clock, clock.sleep)


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=200), st.data())
def test_hashing_in_chunks_is_hashing_at_once(tokens: list[int], data: st.DataObject) -> None:
    array = np.asarray(tokens, dtype=np.int32)
    at = data.draw(st.integers(0, len(tokens)))
    whole = chain_hash(0, array)
    first = chain_hash(0, array[:at]) if at else np.empty(0, dtype=np.uint64)
    before = int(first[-1]) if at else 0
    rest = chain_hash(before, array[at:]) if at < len(tokens) else np.empty(0, dtype=np.uint64)
    assert (np.concatenate([first, rest]) == whole).all()
    hashes = [0]
    for token in tokens:
        hashes.append(next_hash(hashes[-1], token))
    assert hashes[1:] == whole.tolist()


def test_given_equal_prefixes_when_drawn_greedily_then_seeds_do_not_matter() -> None:
    draws = {draw(12345, Sampling(temperature=0.0, seed=seed), EOS).token for seed in range(50)}
    assert len(draws) == 1


def test_given_equal_seeds_when_drawn_with_temperature_then_equal_and_otherwise_not() -> None:
    def sample(seed: int) -> int:
        return draw(12345, Sampling(seed=seed), EOS).token

    assert sample(7) == sample(7)
    assert len({sample(seed) for seed in range(50)}) > 5


def test_given_forbidden_tokens_when_drawn_then_they_never_come() -> None:
    allowed = draw(1, GREEDY, EOS).token
    others = tuple(t for t in range(257) if t != allowed)
    for prefix in range(200):
        assert draw(prefix, Sampling(temperature=0.0, forbidden=others), EOS).token == allowed


def test_given_logprobs_when_drawn_then_the_shares_sum_to_one_without_the_end() -> None:
    sample = draw(99, Sampling(temperature=0.0, logprobs=300), EOS)
    assert sample.logprob is not None
    assert sum(np.exp(logprob) for _, logprob in sample.top) == pytest.approx(1 - 1 / 256)
    assert sample.token in dict(sample.top)


def test_given_top_k_1_when_drawn_then_it_is_greedy() -> None:
    for prefix in range(1, 300):
        greedy = draw(prefix, GREEDY, EOS).token
        assert draw(prefix, Sampling(top_k=1, seed=prefix), EOS).token == greedy
        assert draw(prefix, Sampling(top_p=0.01, seed=prefix), EOS).token == greedy


def test_given_a_bias_of_100_when_drawn_then_the_token_is_forced_and_of_minus_100_then_never() -> (
    None
):
    forced = Sampling(temperature=0.0, logit_bias=((300, 100.0),))
    assert {draw(prefix, forced, EOS).token for prefix in range(200)} == {300}
    banned = Sampling(logit_bias=((ord("e"), -100.0), (EOS, -100.0)))
    assert not {draw(prefix, banned, EOS).token for prefix in range(2000)} & {ord("e"), EOS}


def test_given_penalties_when_a_token_was_said_then_it_comes_less_often() -> None:
    def share(sampling: Sampling, said: list[int]) -> int:
        drawn = [draw(prefix, sampling, EOS, said, said).token for prefix in range(3000)]
        return drawn.count(ord(" "))

    said = [ord(" ")] * 3
    plain = share(Sampling(presence_penalty=1e-9), said)
    assert share(Sampling(presence_penalty=2.0), said) < plain / 3
    assert share(Sampling(frequency_penalty=2.0), said) < plain / 3
    assert share(Sampling(repetition_penalty=2.0), said) < plain / 3


def test_given_h100_when_decoding_one_row_then_a_step_is_the_time_to_read_the_weights() -> None:
    clock = Clock()
    runner_with(clock).run(Batch(1, (row_of(1, 100),)))
    # 15 GB of weights over 3.35 TB/s at 80 %, and the launch overhead: the published 6 ms a token.
    assert clock.now == pytest.approx(15.0e9 / (3.35e12 * 0.8) + 0.0005, rel=0.01)


def test_given_h100_when_prefilling_2048_tokens_then_a_step_is_the_time_of_its_flops() -> None:
    clock = Clock()
    runner_with(clock).run(Batch(1, (row_of(2048),)))
    flops = 2 * LLAMA.parameters * 2048 + 4 * 32 * 32 * 128 * 2048 * 2049 / 2
    assert clock.now == pytest.approx(flops / (989e12 * 0.6) + 0.0005, rel=0.001)


def test_given_a_slower_device_when_it_runs_then_time_grows_by_the_inverse() -> None:
    fast, slow = Clock(), Clock()
    runner_with(fast).run(Batch(1, (row_of(512),)))
    runner_with(slow, speed=0.6).run(Batch(1, (row_of(512),)))
    assert slow.now == pytest.approx(fast.now / 0.6)


def test_given_a_faster_gpu_when_it_runs_then_it_takes_less_time() -> None:
    times = []
    for gpu in ("a100", "h100", "h200", "b200"):
        clock = Clock()
        runner_with(clock, gpu=gpu).run(Batch(1, (row_of(1, 2000),)))
        times.append(clock.now)
    assert times == sorted(times, reverse=True)


def test_given_a_host_that_is_a_little_late_when_steps_follow_then_the_device_loses_no_time() -> (
    None
):
    clock = Clock()
    runner = runner_with(clock)
    runner.run(Batch(1, (row_of(1, 100),)))
    first = clock.now
    clock.now += 0.002
    runner.run(Batch(2, (row_of(1, 100),)))
    assert clock.now == pytest.approx(2 * first)


def test_given_an_idle_device_when_a_step_comes_then_it_begins_now() -> None:
    clock = Clock()
    runner = runner_with(clock)
    runner.run(Batch(1, (row_of(1, 100),)))
    first, clock.now = clock.now, 100.0
    runner.run(Batch(2, (row_of(1, 100),)))
    assert clock.now == pytest.approx(100.0 + first)


def test_given_the_instant_device_when_it_runs_then_it_never_sleeps() -> None:
    clock = Clock()
    runner = SimulatedRunner(LIMITS, EOS, None, clock, clock.sleep)
    runner.run(Batch(1, (row_of(2048),)))
    assert clock.slept == []
    assert runner.longest_step_seconds(2048) == 0.0


def test_given_the_longest_step_when_any_batch_of_that_size_runs_then_it_is_not_longer() -> None:
    clock = Clock()
    runner = runner_with(clock)
    runner.run(Batch(1, (row_of(2048, 8192 - 2048),)))
    assert clock.now <= runner.longest_step_seconds(2048)


def test_given_70b_when_it_does_not_fit_one_gpu_then_it_takes_the_next_power_of_two() -> None:
    assert Roofline(MODELS["llama-3-70b"], GPUS["h100"]).gpus == 4
    assert Roofline(MODELS["llama-3-70b"], GPUS["b200"]).gpus == 2
    assert Roofline(LLAMA, GPUS["h100"]).gpus == 1


def test_given_8b_when_sized_then_parameters_and_kv_are_the_published_ones() -> None:
    assert LLAMA.weight_bytes == pytest.approx(16.06e9, rel=0.001)
    assert LLAMA.kv_bytes_per_token == 128 * 1024


def test_given_a_config_json_when_named_then_its_shape_is_used(tmp_path: Path) -> None:
    config = {
        "num_attention_heads": 8,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "vocab_size": 1000,
        "max_position_embeddings": 2048,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = shape_named(str(tmp_path))
    assert (shape.kv_heads, shape.head_dim, shape.context_length) == (8, 64, 2048)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"num_attention_heads": "x"}'])
def test_given_a_broken_config_json_when_named_then_one_line_says_so(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot be read"):
        shape_named(str(path))


def test_given_unknown_names_when_looked_up_then_the_known_ones_are_listed() -> None:
    with pytest.raises(UsageError, match="a100, h100, h200, b200"):
        gpu_named("h1000")
    with pytest.raises(UsageError, match="llama-3-8b"):
        shape_named("no-such-model")


@given(st.text(max_size=50))
def test_the_byte_tokenizer_gives_back_every_text(text: str) -> None:
    tokenizer = ByteTokenizer(512)
    encodable = text.encode(errors="replace").decode()
    assert tokenizer.decode(tokenizer.encode(text)) == encodable


def test_given_a_chat_when_it_goes_on_then_its_prompt_begins_with_the_earlier_one_and_the_answer() -> (
    None
):
    tokenizer = ByteTokenizer(512)
    first = [{"role": "user", "content": "hi"}]
    longer = [*first, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "?"}]
    assert tokenizer.render_chat(longer).startswith(tokenizer.render_chat(first) + "hello")
