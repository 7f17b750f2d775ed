"""Wrong calls: 400 in OpenAI's shape that names the field, and nothing worse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from api_builders import FrontUnderTest, front
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rampway_server.api.wire import NEUTRAL
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

CHAT = "/v1/chat/completions"
COMPLETE = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
PROMPT = {"prompt": "hi", "max_tokens": 2}


@pytest.fixture
async def server() -> AsyncIterator[FrontUnderTest]:
    async with front() as made:
        yield made


async def fault_of(server: FrontUnderTest, path: str, body: Any) -> dict[str, Any]:
    response = await server.post(path, body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert response.headers["x-request-id"]
    return error


@pytest.mark.parametrize(
    ("path", "change", "param"),
    [
        (CHAT, {"temperature": -1}, "temperature"),
        (CHAT, {"temperature": "hot"}, "temperature"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (CHAT, {"max_tokens": 1.5}, "max_tokens"),
        (CHAT, {"max_tokens": 10**30}, "max_tokens"),
        (CHAT, {"max_completion_tokens": 9000, "max_tokens": None}, "max_completion_tokens"),
        (CHAT, {"n": 5}, "n"),
        (CHAT, {"n": 0}, "n"),
        (CHAT, {"top_p": 0}, "top_p"),
        (CHAT, {"seed": 2**70}, "seed"),
        (CHAT, {"stop": [""]}, "stop[0]"),
        (CHAT, {"stop": ["a"] * 5}, "stop"),
        (CHAT, {"stop": ["x" * 65]}, "stop[0]"),
        (CHAT, {"logit_bias": {"abc": 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {"999999999": 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias"),
        (CHAT, {"logit_bias": {str(i): 1 for i in range(301)}}, "logit_bias"),
        (CHAT, {"top_logprobs": 3}, "top_logprobs"),
        (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": "hi"}, "messages"),
        (CHAT, {"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": "hi", "x": 1}]}, "messages[0].x"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (
            CHAT,
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "u"}]}]},
            "messages[0].content[0].type",
        ),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 9000}]}, "messages"),
        (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
        (CHAT, {"stream": True, "stream_options": {"nope": 1}}, "stream_options.nope"),
        (CHAT, {"tempreature": 1}, "tempreature"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools"),
        (CHAT, {"response_format": {"type": "grammar"}}, "response_format"),
        (CHAT, {"chat_template": "{{ 1 }}"}, "chat_template"),
        (CHAT, {"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        (COMPLETE, {"prompt": ""}, "prompt"),
        (COMPLETE, {"prompt": []}, "prompt"),
        (COMPLETE, {"prompt": [[]]}, "prompt"),
        (COMPLETE, {"prompt": None}, "prompt"),
        (COMPLETE, {"prompt": [-1]}, "prompt"),
        (COMPLETE, {"prompt": [2**40]}, "prompt"),
        (COMPLETE, {"prompt": [130_000]}, "prompt"),
        (COMPLETE, {"prompt": ["a"] * 65}, "prompt"),
        (COMPLETE, {"prompt": ["a", 1]}, "prompt"),
        (COMPLETE, {"prompt": "x" * 9000}, "prompt"),
        (COMPLETE, {"prompt": "x" * 600_000}, "prompt"),
        (COMPLETE, {"best_of": 2}, "best_of"),
        (COMPLETE, {"suffix": "end"}, "suffix"),
        (COMPLETE, {"echo": True, "logprobs": 1}, "echo"),
        (COMPLETE, {"prompt_logprobs": -1}, "prompt_logprobs"),
        (COMPLETE, {"cache_salt": ""}, "cache_salt"),
        ("/generate", {"text": None, "prompt": None, "max_tokens": None}, "text"),
        ("/generate", {"text": "a", "input_ids": [1], "prompt": None, "max_tokens": None}, "text"),
        (
            "/generate",
            {"text": "a", "sampling_params": {"x": 1}, "prompt": None, "max_tokens": None},
            "sampling_params.x",
        ),
        ("/tokenize", {"prompt": None, "max_tokens": None}, "prompt"),
        ("/detokenize", {"tokens": [10**6], "prompt": None, "max_tokens": None}, "tokens"),
    ],
)
async def test_given_a_wrong_field_when_called_then_400_names_it(
    server: FrontUnderTest, path: str, change: dict[str, Any], param: str
) -> None:
    error = await fault_of(server, path, {**(HELLO if path == CHAT else PROMPT), **change})
    named = error["param"]
    # Some fields are unions: what is wrong may be found deeper inside.
    assert named.startswith(param), error
    assert server.outcomes() == dict.fromkeys(("ok", "error", "aborted", "rejected"), 0.0)


async def test_given_several_wrong_fields_when_called_then_all_are_named(
    server: FrontUnderTest,
) -> None:
    error = await fault_of(server, CHAT, {**HELLO, "temperature": 9, "n": -1, "foo": 1})
    assert all(f"{name}:" in error["message"] for name in ("temperature", "n", "foo"))


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe", b'{"a":1,}', b"[" * 100_000, b"NaN"]
)
@pytest.mark.parametrize("path", [CHAT, COMPLETE, "/generate", "/tokenize"])
async def test_given_a_body_that_is_no_json_object_when_called_then_400(
    server: FrontUnderTest, path: str, raw: bytes
) -> None:
    response = await server.client.post(path, content=raw)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("field", sorted(NEUTRAL))
async def test_given_a_neutral_value_of_an_unsupported_field_when_called_then_it_is_accepted(
    server: FrontUnderTest, field: str
) -> None:
    for value in (None, *NEUTRAL[field]):
        response = await server.post(COMPLETE, {**PROMPT, field: value})
        assert response.status_code == 200, response.text


async def test_given_fields_that_cannot_change_the_text_when_called_then_they_are_accepted(
    server: FrontUnderTest,
) -> None:
    harmless = {"user": "u", "metadata": {"deep": [1]}, "store": False, "service_tier": "auto"}
    nulls = dict.fromkeys(("temperature", "stop", "seed", "logit_bias", "stream_options", "n"))
    response = await server.post(CHAT, {**HELLO, **harmless, **nulls})
    assert response.status_code == 200, response.text


async def test_given_a_body_above_the_limit_when_called_then_413(server: FrontUnderTest) -> None:
    response = await server.post(COMPLETE, {**PROMPT, "user": "x" * 2_000_000})
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


async def test_given_another_method_or_path_when_called_then_405_or_404_in_the_same_shape(
    server: FrontUnderTest,
) -> None:
    wrong = await server.client.get(CHAT)
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    other = await server.client.delete("/v1/models")
    missing = await server.client.get("/metrics")
    assert (other.status_code, missing.status_code) == (405, 404)
    for response in (wrong, other, missing):
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


async def test_given_a_starting_server_when_called_then_503_says_when_to_come_back() -> None:
    async with front(loaded=False) as starting:
        for path, body in ((CHAT, HELLO), (COMPLETE, PROMPT), ("/tokenize", {"prompt": "x"})):
            response = await starting.post(path, body)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "1"
            assert response.headers["connection"] == "close"
            assert response.json()["error"]["code"] == "starting"
        assert (await starting.client.get("/livez")).status_code == 200
        assert (await starting.client.get("/readyz")).status_code == 503
        assert starting.outcomes()["rejected"] == 2


async def test_given_a_full_queue_when_called_then_429_with_retry_after_and_readiness_stays() -> (
    None
):
    async with front("--max-queued-requests", "2", "--max-queued-tokens", "50") as full:
        bridge = full.service.loaded.bridge
        bridge._queued, bridge._queued_tokens = 2, 10
        response = await full.post(COMPLETE, PROMPT)
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.json()["error"]["code"] == "queue_full"
        bridge._queued, bridge._queued_tokens = 1, 49
        assert (await full.post(COMPLETE, PROMPT)).status_code == 429
        assert (await full.client.get("/readyz")).status_code == 200
        assert full.outcomes()["rejected"] == 2
        bridge._queued, bridge._queued_tokens = 0, 0
        # An empty queue takes any legal request, also one larger than the limit.
        assert (await full.post(COMPLETE, {"prompt": "x" * 200})).status_code == 200


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    ["prompt", "messages", "max_tokens", "n", "stop", "stream", "logit_bias", "logprobs", "seed"]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=st.dictionaries(FIELDS | st.text(max_size=6), JSON, max_size=6), chat=st.booleans())
async def test_any_body_is_answered_with_200_or_400(body: dict[str, Any], chat: bool) -> None:
    async with front() as server:
        raw = json.dumps(body).encode()
        response = await server.client.post(CHAT if chat else COMPLETE, content=raw)
        assert response.status_code in {200, 400}, response.text
        assert server.outcomes()["error"] == 0


def test_given_an_error_when_made_then_its_parts_are_what_openai_clients_read() -> None:
    error = RequestError("m", status=429, kind="k", param="p", code="c", retry_after_seconds=3)
    assert (error.status, error.retry_after_seconds, str(error)) == (429, 3, "m")
