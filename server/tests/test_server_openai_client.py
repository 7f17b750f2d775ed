"""The official OpenAI client against a real process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import openai
import pytest
from server_builders import ServerProcess, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "simulated-llama-3-8b"
CHAT = [{"role": "system", "content": "You are terse. " * 10}, {"role": "user", "content": "Hi!"}]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving(env={"RAMPWAY_REVISION": "demo-0123456789"}) as started:
        yield started


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


def test_given_a_server_when_models_are_listed_then_the_one_it_serves_is_there(
    client: openai.OpenAI,
) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_given_a_chat_when_asked_twice_then_the_text_is_equal_and_the_prefix_is_reused(
    client: openai.OpenAI,
) -> None:
    answers = [
        client.chat.completions.create(model=MODEL, messages=CHAT, temperature=0, max_tokens=20)
        for _ in range(2)
    ]
    assert answers[0].choices[0].message.content == answers[1].choices[0].message.content
    usage = answers[1].usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens // 16 * 16
    assert usage.total_tokens == usage.prompt_tokens + 20
    assert answers[0].choices[0].finish_reason == "length"


def test_given_a_stream_when_read_to_its_end_then_it_is_the_whole_answer_and_has_the_usage(
    client: openai.OpenAI,
) -> None:
    options = {"model": MODEL, "messages": CHAT, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**options)
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


async def test_given_many_async_streams_when_they_run_together_then_each_gets_its_own_text(
    server: ServerProcess,
) -> None:
    async with openai.AsyncOpenAI(
        base_url=server.url + "/v1", api_key="none", max_retries=0
    ) as client:

        async def ask(number: int, *, stream: bool) -> str:
            options = {
                "model": MODEL,
                "prompt": f"prompt number {number % 8} " * 8,
                "temperature": 0,
                "max_tokens": 32,
            }
            if not stream:
                return (await client.completions.create(**options)).choices[0].text
            chunks = await client.completions.create(**options, stream=True)
            return "".join([chunk.choices[0].text async for chunk in chunks])

        alone = [await ask(number, stream=False) for number in range(8)]
        together = await asyncio.gather(*(ask(number, stream=True) for number in range(64)))
    assert together == [alone[number % 8] for number in range(64)]
    assert len(set(alone)) == 8


def test_given_n_choices_when_sampled_then_they_differ_and_a_seed_repeats_them(
    client: openai.OpenAI,
) -> None:
    def texts() -> list[str]:
        answer = client.completions.create(
            model=MODEL, prompt="once upon a time there was", n=3, seed=11, max_tokens=24
        )
        assert answer.usage.prompt_tokens == 26
        return [choice.text for choice in answer.choices]

    first = texts()
    assert texts() == first
    assert len(set(first)) == 3


def test_given_several_prompts_when_completed_then_choices_keep_their_order(
    client: openai.OpenAI,
) -> None:
    one = client.completions.create(model=MODEL, prompt="aa", temperature=0, max_tokens=8)
    both = client.completions.create(model=MODEL, prompt=["bb", "aa"], temperature=0, max_tokens=8)
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[1].text == one.choices[0].text
    tokens = client.completions.create(
        model=MODEL, prompt=list(b"aa"), temperature=0, max_tokens=8, extra_body={"top_k": -1}
    )
    assert tokens.choices[0].text == one.choices[0].text


def test_given_a_stop_string_when_it_comes_then_the_text_ends_before_it(
    client: openai.OpenAI,
) -> None:
    options = {"model": MODEL, "prompt": "tell me more", "temperature": 0, "max_tokens": 60}
    full = client.completions.create(**options).choices[0].text
    stop = full[20:23]
    cut = client.completions.create(**options, stop=[stop, "never said"])
    assert cut.choices[0].text == full[: full.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    chunks = client.completions.create(**options, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == full[: full.index(stop)]
    shown = client.completions.create(
        **options, stop=stop, extra_body={"include_stop_str_in_output": True}
    )
    assert shown.choices[0].text == full[: full.index(stop) + len(stop)]


def test_given_logprobs_when_asked_then_each_token_has_its_own(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_tokens=5, logprobs=True, top_logprobs=3
    )
    content = answer.choices[0].logprobs.content
    assert "".join(entry.token for entry in content) == answer.choices[0].message.content
    assert all(entry.logprob < 0 and len(entry.top_logprobs) == 3 for entry in content)
    completion = client.completions.create(model=MODEL, prompt="x", max_tokens=4, logprobs=0)
    logprobs = completion.choices[0].logprobs
    assert len(logprobs.token_logprobs) == 4
    assert logprobs.text_offset == [0, 1, 2, 3]
    assert logprobs.top_logprobs == [{}] * 4


def test_given_echo_when_completed_then_the_text_begins_with_the_prompt(
    client: openai.OpenAI,
) -> None:
    for stream in (False, True):
        answer = client.completions.create(
            model=MODEL, prompt="say: ", echo=True, max_tokens=4, temperature=0, stream=stream
        )
        texts = [c.choices[0].text for c in answer] if stream else [answer.choices[0].text]
        assert "".join(texts).startswith("say: ")
        assert len("".join(texts)) == 9


def test_given_ignore_eos_when_the_model_ends_then_it_goes_on_to_max_tokens(
    client: openai.OpenAI,
) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="long", max_tokens=2000, temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage.completion_tokens == 2000
    ended = client.completions.create(model=MODEL, prompt="long", max_tokens=2000, temperature=0)
    assert ended.usage.completion_tokens < 2000
    assert ended.choices[0].finish_reason == "stop"
    assert answer.choices[0].text.startswith(ended.choices[0].text)


def test_given_a_wrong_call_when_made_then_the_client_raises_its_own_error(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError, match="model does not exist"):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="x" * 9000)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.param == "prompt"
    with pytest.raises(openai.BadRequestError, match="max_tokens is too high"):
        client.completions.create(model=MODEL, prompt="x", max_tokens=8192)


def test_given_a_request_id_when_sent_then_it_comes_back_with_the_revision(
    client: openai.OpenAI,
) -> None:
    for stream in (False, True):
        raw = client.completions.with_raw_response.create(
            model=MODEL,
            prompt="x",
            max_tokens=2,
            stream=stream,
            extra_headers={"X-Request-Id": "my-id-1"},
        )
        assert raw.headers["x-request-id"] == "my-id-1"
        assert raw.headers["x-rampway-revision"] == "demo-0123456789"
        raw.http_response.close()
