"""The official OpenAI client's tools and structured output against a real process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

import openai
import pytest
from pydantic import BaseModel, Field
from server_builders import ServerProcess, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "simulated-llama-3-8b"
CHAT: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]


class City(BaseModel):
    """What the answers must be; the client makes a strict schema of it."""

    name: str = Field(max_length=12)
    kind: Literal["town", "capital"]
    districts: list[int]


class Weather(BaseModel):
    """Arguments of the tool."""

    city: Literal["Paris", "Rome"]
    days: int


TOOLS: list[Any] = [openai.pydantic_function_tool(Weather, name="weather")]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as started:
        yield started


@pytest.fixture
def client(server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.mark.parametrize("seed", range(5))
def test_given_a_pydantic_model_when_parsed_by_the_client_then_the_answer_is_one(
    client: openai.OpenAI, seed: int
) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=CHAT, response_format=City, seed=seed, max_tokens=2000
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(answer.choices[0].message.parsed, City)


def test_given_a_required_tool_when_called_then_the_client_parses_its_arguments(
    client: openai.OpenAI,
) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=2000
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    calls = choice.message.tool_calls or []
    assert calls
    assert all(isinstance(call.function.parsed_arguments, Weather) for call in calls)
    assert len({call.id for call in calls}) == len(calls)


def test_given_a_stream_of_a_call_when_joined_then_it_is_the_call_of_the_whole_answer(
    client: openai.OpenAI,
) -> None:
    options: dict[str, Any] = {
        "model": MODEL,
        "messages": CHAT,
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "temperature": 0,
        "max_tokens": 2000,
    }
    whole = client.chat.completions.create(**options).choices[0].message.tool_calls[0]
    name, arguments, finish = "", "", None
    for chunk in client.chat.completions.create(**options, stream=True):
        finish = chunk.choices[0].finish_reason or finish
        for call in chunk.choices[0].delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert (name, json.loads(arguments)) == ("weather", json.loads(whole.function.arguments))
    assert finish == "tool_calls"


def test_given_the_client_streams_a_model_when_it_is_done_then_it_has_parsed_it(
    client: openai.OpenAI,
) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=CHAT, response_format=City, seed=3, max_tokens=2000
    ) as stream:
        texts = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion().choices[0].message
    assert "".join(texts) == final.content
    assert isinstance(final.parsed, City)


def test_given_a_call_and_its_result_when_sent_back_then_the_next_turn_is_answered(
    client: openai.OpenAI,
) -> None:
    first = client.chat.completions.create(
        model=MODEL, messages=CHAT, tools=TOOLS, tool_choice="required", max_tokens=2000
    )
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
    second = client.chat.completions.create(
        model=MODEL, messages=[*CHAT, message, *results], tools=TOOLS, max_tokens=20
    )
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
    assert second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens // 16 * 16


async def test_given_an_async_client_when_a_schema_is_too_much_then_it_raises_and_names_the_field(
    server: ServerProcess,
) -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(9000)}}
    async with openai.AsyncOpenAI(
        base_url=server.url + "/v1", api_key="none", max_retries=0
    ) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model=MODEL,
                messages=CHAT,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": "wide", "schema": schema},
                },
            )
    assert caught.value.param == "response_format"
    assert "need at most 65536" in caught.value.message
