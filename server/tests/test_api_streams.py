"""Streams in detail: events, usage, failures in the middle, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from api_builders import FrontUnderTest, front
from engine_builders import BACKENDS

from rampway_server.api.app import build_app
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = {"prompt": "a prompt that fills one page and more", "max_tokens": 12, "temperature": 0}


@pytest.fixture
async def server() -> AsyncIterator[FrontUnderTest]:
    async with front() as made:
        yield made


def events_of(text: str) -> list[Any]:
    assert text.endswith("data: [DONE]\n\n")
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [json.loads(line) for line in lines[:-1]]


async def test_given_a_native_stream_when_read_then_every_event_holds_the_text_so_far(
    server: FrontUnderTest,
) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 6, "temperature": 0}}
    whole = (await server.post("/generate", body)).json()
    events = events_of((await server.post("/generate", {**body, "stream": True})).text)
    assert [len(event["output_ids"]) for event in events] == [1, 2, 3, 4, 5, 6]
    assert events[-1]["text"] == whole["text"]
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length"}
    assert whole["meta_info"]["prompt_tokens"] == 5
    ids = {"input_ids": list(b"hello"), "sampling_params": body["sampling_params"]}
    assert (await server.post("/generate", ids)).json()["text"] == whole["text"]


async def test_given_continuous_usage_when_streamed_then_every_chunk_counts(
    server: FrontUnderTest,
) -> None:
    body = {**PROMPT, "stream": True, "stream_options": {"continuous_usage_stats": True}}
    events = events_of((await server.post("/v1/completions", body)).text)
    assert [event["usage"]["completion_tokens"] for event in events] == [*range(1, 13), 12]


async def test_given_no_max_tokens_when_the_context_is_nearly_full_then_what_is_left_is_drawn(
    server: FrontUnderTest,
) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": [1] * 8190, "ignore_eos": True}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 8172}]}),
        ("/generate", {"input_ids": [1] * 8190, "sampling_params": {"ignore_eos": True}}),
    ):
        answer = (await server.post(path, body)).json()
        usage = answer.get("usage") or answer["meta_info"]
        assert usage["prompt_tokens"] == 8190
        assert usage["completion_tokens"] <= 2


async def test_given_n_choices_when_streamed_then_each_ends_once(server: FrontUnderTest) -> None:
    body = {
        "messages": [{"role": "user", "content": "hi"}],
        "n": 4,
        "seed": 3,
        "max_tokens": 30,
        "stream": True,
    }
    events = events_of((await server.post("/v1/chat/completions", body)).text)
    choices = [event["choices"][0] for event in events]
    assert sorted(c["index"] for c in choices if c["finish_reason"]) == [0, 1, 2, 3]
    assert sorted(c["index"] for c in choices if c["delta"].get("role")) == [0, 1, 2, 3]


async def test_given_utf8_tokens_when_streamed_then_no_chunk_holds_half_a_character(
    server: FrontUnderTest,
) -> None:
    # A bias leaves the two bytes of "é" only, each as likely: every token is one of them.
    body = {
        "prompt": "x",
        "max_tokens": 40,
        "seed": 1,
        "stream": True,
        "logit_bias": {str(byte): 60 for byte in "é".encode()},
    }
    events = events_of((await server.post("/v1/completions", body)).text)
    texts = [event["choices"][0]["text"] for event in events]
    whole = (await server.post("/v1/completions", {**body, "stream": False})).json()
    assert "é" in texts
    assert "".join(texts) == whole["choices"][0]["text"]
    # A lone half can only be what the model really said: then it stands where its byte was.
    assert len("".join(texts)) + "".join(texts).count("é") == 40


@pytest.mark.parametrize("stream", [False, True])
async def test_given_a_failed_step_when_it_computed_a_request_then_500_and_the_next_one_is_served(
    server: FrontUnderTest, stream: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = server.service.loaded.engine._runner
    run, calls = runner.run, []

    def failing(batch):
        calls.append(batch.step)
        if len(calls) == 1:
            raise RuntimeError("device lost")
        return run(batch)

    runner.run = failing
    failed = await server.post("/v1/completions", {**PROMPT, "stream": stream})
    assert failed.status_code == 500
    assert failed.json()["error"]["code"] == "engine_error"
    assert (await server.post("/v1/completions", PROMPT)).status_code == 200
    assert server.outcomes() == {"ok": 1, "error": 1, "aborted": 0, "rejected": 0}
    assert "device lost" in capsys.readouterr().out


async def test_given_a_failure_after_the_first_token_when_streamed_then_an_error_event_ends_it(
    server: FrontUnderTest,
) -> None:
    service = server.service
    sent: list[dict[str, Any]] = []
    body = json.dumps({**PROMPT, "max_tokens": 8000, "ignore_eos": True, "stream": True}).encode()

    async def receive() -> dict[str, Any]:
        if sent or receive.asked:  # type: ignore[attr-defined]
            await asyncio.Event().wait()
        receive.asked = True  # type: ignore[attr-defined]
        return {"type": "http.request", "body": body, "more_body": False}

    receive.asked = False  # type: ignore[attr-defined]

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)
        if len(sent) == 3:
            service.loaded.bridge.fail_all(RequestError("cut", status=503, code="draining"))

    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}
    await build_app(service)(scope, receive, send)
    assert sent[0]["status"] == 200
    last = sent[-1]["body"].decode()
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "draining"
    assert server.outcomes()["error"] == 1


async def a_chat_in_a_churned_pool(backend: str) -> tuple[list[str], int]:
    """Return what each turn answered, and the last turn's cached tokens."""
    async with front("--prefix-cache", backend, "--num-pages", "80", "--page-size", "8") as server:
        messages = [{"role": "system", "content": "be kind"}]
        cached = 0
        for turn in range(6):
            messages.append({"role": "user", "content": f"question {turn}"})
            answer = await server.post(
                "/v1/chat/completions",
                {"messages": messages, "temperature": 0, "max_tokens": 24},
            )
            text = answer.json()["choices"][0]["message"]["content"]
            messages.append({"role": "assistant", "content": text})
            cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            others = [{"prompt": f"{turn} {other} " * 12} for other in range(6)]
            await asyncio.gather(*(server.post("/v1/completions", other) for other in others))
        return [m["content"] for m in messages if m["role"] == "assistant"], cached


async def test_given_each_cache_when_the_same_chat_goes_on_then_the_texts_are_equal() -> None:
    results = {backend: await a_chat_in_a_churned_pool(backend) for backend in BACKENDS}
    texts = {tuple(said) for said, _ in results.values()}
    assert len(texts) == 1
    assert results["off"][1] == 0
    assert results["rust"][1] > 0
    assert results["python"][1] > 0
