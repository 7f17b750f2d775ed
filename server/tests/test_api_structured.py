"""`response_format`, forced tool calls and their limits, over the whole front."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from api_builders import FrontUnderTest, front
from hypothesis import given, settings
from hypothesis import strategies as st

from rampway_server.api import grammars
from rampway_server.api.dialect import dialect_of
from rampway_server.api.grammars import Grammars
from rampway_server.engine.byte_tokenizer import CHAT_TEMPLATE, ByteTokenizer
from rampway_server.errors import RequestError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "é", None]}, "maxItems": 3},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
    "$defs": {"place": {"anyOf": [{"type": "null"}, {"const": {"x": 1}}]}},
}
WEATHER = {"name": "weather", "parameters": {**PERSON, "title": "Weather"}}
CLOCK = {"name": "clock"}
TOOLS = [{"type": "function", "function": WEATHER}, {"type": "function", "function": CLOCK}]


@pytest.fixture
async def server() -> AsyncIterator[FrontUnderTest]:
    async with front() as made:
        yield made


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


async def choice_of(server: FrontUnderTest, body: dict[str, Any]) -> dict[str, Any]:
    response = await server.post(CHAT, {**HELLO, **body})
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]


async def test_given_a_schema_when_chats_are_drawn_then_every_answer_is_valid(
    server: FrontUnderTest,
) -> None:
    body = {**HELLO, "response_format": schema_format(PERSON), "n": 4}
    for seed in range(3):
        for options in ({"temperature": 1.0}, {"temperature": 0}, {"top_k": 1, "min_p": 0.1}):
            answer = (await server.post(CHAT, {**body, **options, "seed": seed * 10})).json()
            for choice in answer["choices"]:
                assert choice["finish_reason"] == "stop"
                jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


async def test_given_an_object_is_asked_for_when_drawn_on_each_route_then_it_is_one(
    server: FrontUnderTest,
) -> None:
    chat = await choice_of(server, {"response_format": {"type": "json_object"}})
    assert isinstance(json.loads(chat["message"]["content"]), dict)
    body = {"prompt": "x", "max_tokens": 400, "response_format": {"type": "json_object"}}
    text = (await server.post("/v1/completions", body)).json()["choices"][0]["text"]
    assert isinstance(json.loads(text), dict)
    native = {"max_new_tokens": 400, "json_schema": '{"type": "integer"}'}
    answer = await server.post("/generate", {"text": "x", "sampling_params": native})
    assert isinstance(json.loads(answer.json()["text"]), int)


async def test_given_pages_run_out_when_schemas_are_drawn_then_preemption_breaks_none() -> None:
    async with front("--num-pages", "70", "--page-size", "4") as small:
        body = {**HELLO, "max_tokens": 200, "response_format": schema_format(PERSON), "n": 4}
        answer = (await small.post(CHAT, {**body, "seed": 3})).json()
        for choice in answer["choices"]:
            if choice["finish_reason"] == "stop":
                jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)
        assert any(choice["finish_reason"] == "stop" for choice in answer["choices"])
        assert small.service.loaded.engine._scheduler.preemptions > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_given_a_forced_choice_when_drawn_then_the_arguments_follow_the_schema(
    server: FrontUnderTest, stream: bool
) -> None:
    for seed in range(4):
        body = {**HELLO, "tools": TOOLS, "tool_choice": "required", "seed": seed, "stream": stream}
        response = await server.post(CHAT, body)
        calls, finish = streamed(response.text) if stream else whole(response.json())
        assert finish == "tool_calls"
        assert calls
        for name, arguments in calls:
            if name == "weather":
                jsonschema.validate(json.loads(arguments), PERSON)
            else:
                assert (name, json.loads(arguments)) == ("clock", {})


async def test_given_a_named_tool_or_no_parallel_calls_when_drawn_then_there_is_one_call(
    server: FrontUnderTest,
) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    for choice, extra in ((named, {}), ("required", {"parallel_tool_calls": False})):
        for seed in range(4):
            body = {"tools": TOOLS, "tool_choice": choice, "seed": seed, **extra}
            message = (await choice_of(server, body))["message"]
            assert message["content"] is None
            assert len(message["tool_calls"]) == 1
            if choice is named:
                assert message["tool_calls"][0]["function"]["name"] == "clock"


async def test_given_tools_when_left_to_the_model_then_text_stays_text_and_formats_still_hold(
    server: FrontUnderTest,
) -> None:
    free = await choice_of(server, {"tools": TOOLS, "max_tokens": 20})
    assert free["message"]["content"]
    assert "tool_calls" not in free["message"]
    strict = [{"type": "function", "function": {**WEATHER, "strict": True}}]
    assert (await choice_of(server, {"tools": strict}))["finish_reason"] == "stop"
    both = {"tools": TOOLS, "response_format": {"type": "json_object"}}
    for seed in range(4):
        message = (await choice_of(server, {**both, "seed": seed}))["message"]
        assert message.get("tool_calls") or isinstance(json.loads(message["content"]), dict)


async def test_given_tools_when_the_choice_is_none_then_the_prompt_does_not_show_them(
    server: FrontUnderTest,
) -> None:
    async def prompt_tokens(**extra: Any) -> int:
        response = await server.post(CHAT, {**HELLO, "max_tokens": 1, **extra})
        return response.json()["usage"]["prompt_tokens"]

    plain = await prompt_tokens()
    assert await prompt_tokens(tools=TOOLS, tool_choice="none") == plain
    assert await prompt_tokens(tools=TOOLS) > plain
    tokens = await server.post("/tokenize", {"messages": HELLO["messages"], "tools": TOOLS})
    assert tokens.json()["count"] == await prompt_tokens(tools=TOOLS)


async def test_given_a_conversation_with_calls_when_sent_back_then_it_is_taken(
    server: FrontUnderTest,
) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    assistant = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
    messages = [
        *HELLO["messages"],
        {**assistant, "tool_calls": [call], "audio": None, "function_call": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
    ]
    assert await choice_of(server, {"messages": messages, "tools": TOOLS, "max_tokens": 2})
    call["function"] = {"name": "clock", "arguments": "{"}
    response = await server.post(CHAT, {**HELLO, "messages": messages})
    assert response.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"


DEEP: Any = {"type": "string"}
for _ in range(40):
    DEEP = {"type": "array", "items": DEEP}
WIDE = {
    "type": "object",
    "properties": {f"key number {i}": {"type": "string"} for i in range(4000)},
}
AMBIGUOUS = {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(1500)}}


@pytest.mark.parametrize(
    ("change", "param", "code"),
    [
        ({"response_format": schema_format({"type": "foo"})}, "response_format", "invalid_grammar"),
        ({"response_format": schema_format({"not": {}})}, "response_format", "invalid_grammar"),
        (
            {"response_format": schema_format({"$ref": "http://127.0.0.1/x"})},
            "response_format",
            "invalid_grammar",
        ),
        ({"response_format": schema_format(WIDE)}, "response_format", "invalid_grammar"),
        ({"response_format": schema_format(DEEP)}, None, "invalid_json"),
        ({"response_format": schema_format(AMBIGUOUS)}, None, "grammar_too_complex"),
        (
            {"response_format": schema_format({"not": {}, "x-guidance": {"lenient": True}})},
            "response_format",
            "invalid_grammar",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", None),
        ({"response_format": {"type": "regex"}}, "response_format.type", None),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", None),
        ({"tool_choice": "required"}, "tool_choice", None),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "rm"}},
            },
            "tool_choice",
            None,
        ),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools", None),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", None),
        (
            {
                "tools": TOOLS,
                "tool_choice": "required",
                "response_format": {"type": "json_object"},
            },
            "response_format",
            None,
        ),
        ({"response_format": {"type": "json_object"}, "ignore_eos": True}, "ignore_eos", None),
        ({"response_format": {"type": "json_object"}, "min_tokens": 5}, "min_tokens", None),
        (
            {"chat_template_kwargs": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
            "unsupported_parameter",
        ),
        ({"guided_json": {}}, "guided_json", "unknown_parameter"),
    ],
)  # fmt: skip
async def test_given_a_format_that_cannot_be_kept_when_asked_for_then_400_names_it(
    server: FrontUnderTest, change: dict[str, Any], param: str | None, code: str | None
) -> None:
    response = await server.post(CHAT, {**HELLO, **change})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param, error
    assert code is None or error["code"] == code
    assert len(error["message"]) < 600
    assert (await server.post(CHAT, {**HELLO, "max_tokens": 1})).status_code == 200


@pytest.mark.parametrize("body", ["while True: pass", "x = [0] * 10**9", "raise SystemExit"])
async def test_given_a_compiler_that_never_ends_when_asked_then_it_is_killed_and_the_next_one_works(
    body: str,
) -> None:
    code = (
        "import rampway_server.api.grammar_worker as w\n"
        "def fault(lark):\n"
        f"    if 'hard' in lark:\n        {body}\n"
        "    return ''\n"
        "w.fault_of = fault\nw.main()\n"
    )
    made = Grammars([sys.executable, "-c", code])
    tokenizer = ByteTokenizer(300)
    try:
        for _ in range(2):
            with pytest.raises(RequestError, match="200 ms") as caught:
                await made.compile('start: "hard"', tokenizer, "response_format")
            assert caught.value.status == 400
        easy = await made.compile('start: "easy"', tokenizer, "response_format")
        assert await made.compile('start: "easy"', tokenizer, "response_format") is easy
    finally:
        made.close()


async def test_given_many_grammars_wait_when_another_comes_then_429_and_the_kept_ones_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Grammars()
    tokenizer = ByteTokenizer(300)
    monkeypatch.setattr(grammars, "KEPT", 2)
    try:
        for text in "abc":
            await made.compile(f'start: "{text}"', tokenizer, "tools")
        assert len(made._kept) == 2
        made._waiting = grammars.MAX_WAITING
        with pytest.raises(RequestError) as caught:
            await made.compile('start: "d"', tokenizer, "tools")
        assert (caught.value.status, caught.value.retry_after_seconds) == (429, 1)
        with pytest.raises(RequestError, match="need at most 65536"):
            await made.compile("x" * 70_000, tokenizer, "tools")
    finally:
        made.close()


QWEN = "{% if tools %}<tool_call>{% endif %}{% if enable_thinking %}</think>{% endif %}"
LLAMA = '{% if tools %}{"name": function name, "parameters": dictionary}{% endif %}'


@pytest.mark.parametrize(
    ("template", "calls", "thinks"),
    [
        (CHAT_TEMPLATE, "hermes", False),
        (QWEN, "hermes", True),
        (LLAMA, "llama3_json", False),
        ("{{ messages }}", None, False),
        ("{{ tools }}<tool_call><function=a>", None, False),
        ("", None, False),
    ],
)
def test_given_a_template_when_read_then_its_dialect_is_known(
    template: str, calls: str | None, thinks: bool
) -> None:
    found = dialect_of(template, tool_call_parser="auto", reasoning_parser="auto")
    assert (found.calls and found.calls.name, found.thinks) == (calls, thinks)
    off = dialect_of(template, tool_call_parser="off", reasoning_parser="off")
    assert (off.calls, off.thinks) == (None, False)


def test_given_a_parser_flag_that_the_template_cannot_serve_when_started_then_one_line() -> None:
    with pytest.raises(UsageError, match="--tool-call-parser hermes has no use"):
        dialect_of("{{ messages }}", tool_call_parser="hermes", reasoning_parser="auto")


SCHEMAS = st.recursive(
    st.sampled_from(
        [
            {"type": "integer"},
            {"type": "boolean"},
            {"type": "string", "maxLength": 5},
            {"enum": ["x", 1, None]},
            {"const": "c"},
            {"type": "number"},
        ]
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda some: {"anyOf": some}),
        inner.map(lambda one: {"type": "array", "items": one, "maxItems": 2}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda some: {
                "type": "object",
                "properties": some,
                "required": sorted(some),
                "additionalProperties": False,
            }
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=6, deadline=None)
@given(
    schemas=st.lists(SCHEMAS, min_size=3, max_size=6, unique_by=json.dumps),
    seed=st.integers(0, 99),
)
async def test_any_schema_is_kept_by_any_seed(schemas: list[dict[str, Any]], seed: int) -> None:
    async with front() as server:
        for schema in schemas:
            await schema_is_kept(server, schema, seed)


async def schema_is_kept(server: FrontUnderTest, schema: dict[str, Any], seed: int) -> None:
    body = {"response_format": schema_format(schema), "seed": seed, "max_tokens": 2000}
    choice = await choice_of(server, body)
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)


def whole(answer: dict[str, Any]) -> tuple[list[tuple[str, str]], str]:
    choice = answer["choices"][0]
    calls = [call["function"] for call in choice["message"]["tool_calls"]]
    return [(call["name"], call["arguments"]) for call in calls], choice["finish_reason"]


def streamed(text: str) -> tuple[list[tuple[str, str]], str]:
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    calls: list[list[str]] = []
    for choice in choices:
        for delta in choice["delta"].get("tool_calls", ()):
            if "id" in delta:
                calls.append([delta["function"]["name"], ""])
            calls[delta["index"]][1] += delta["function"]["arguments"]
    return [(name, arguments) for name, arguments in calls], choices[-1]["finish_reason"]
