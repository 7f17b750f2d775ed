"""The three generation routes: body → requests and the format of the answer.

They know no socket: `respond` reads the body and sends the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rampway_server.api.formats import ChatFormat, CompletionFormat, NativeFormat
from rampway_server.api.keys import namespace
from rampway_server.api.prompts import TokenLimit, build_requests, chat_messages, encode
from rampway_server.api.wire import ChatBody, CompletionBody, GenerateBody, parse_body
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rampway_server.api.formats import Format
    from rampway_server.api.service import Service
    from rampway_server.api.wire import SamplingBody, StreamOptions
    from rampway_server.engine.request import Request

__all__ = ["ROUTES", "Caller", "Job"]

COMPLETION_TOKENS, NATIVE_TOKENS = 16, 128
"""What OpenAI's completions and SGLang's generate draw when nothing is said."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and under which request id."""

    tenant: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A call that passed every check and may be given to the engine."""

    requests: list[Request]
    body: SamplingBody
    format: Format
    stream: bool
    usage_in_events: bool


async def chat(service: Service, raw: bytes, caller: Caller) -> Job:
    """POST /v1/chat/completions."""
    loaded = service.require_open()
    body = parse_body(ChatBody, raw)
    service.require_model(body.model)
    if body.top_logprobs and not body.logprobs:
        raise RequestError(
            "top_logprobs needs logprobs: got false, need true", param="top_logprobs"
        )
    text = loaded.tokenizer.render_chat(
        chat_messages(body.messages), add_generation_prompt=body.add_generation_prompt
    )
    # The template writes the special tokens itself.
    tokens = await encode(service, text, add_special_tokens=False, param="messages")
    limit = TokenLimit("max_tokens", body.max_tokens)
    if body.max_completion_tokens is not None:
        limit = TokenLimit("max_completion_tokens", body.max_completion_tokens)
    requests = build_requests(
        service,
        [tokens],
        body,
        limit=limit,
        logprobs=max(1, body.top_logprobs) if body.logprobs else 0,
        namespace=namespace(caller.tenant, body.cache_salt, service.model_id),
        param="messages",
        priority=body.priority,
    )
    options = _options(body.stream_options, stream=body.stream)
    answer = ChatFormat(
        f"chatcmpl-{caller.request_id}",
        service.model_id,
        loaded.tokenizer,
        logprobs=body.top_logprobs if body.logprobs else None,
        include_usage=options[0],
    )
    return Job(requests, body, answer, body.stream, options[1])


async def complete(service: Service, raw: bytes, caller: Caller) -> Job:
    """POST /v1/completions."""
    loaded = service.require_open()
    body = parse_body(CompletionBody, raw)
    service.require_model(body.model)
    _check_completion(body)
    prompts = await _prompts(service, body)
    requests = build_requests(
        service,
        prompts,
        body,
        limit=TokenLimit("max_tokens", body.max_tokens, COMPLETION_TOKENS),
        logprobs=0 if body.logprobs is None else max(1, body.logprobs),
        namespace=namespace(caller.tenant, body.cache_salt, service.model_id),
        param="prompt",
        priority=body.priority,
    )
    options = _options(body.stream_options, stream=body.stream)
    echo = [loaded.tokenizer.decode(r.prompt.tolist()) for r in requests] if body.echo else None
    answer = CompletionFormat(
        f"cmpl-{caller.request_id}",
        service.model_id,
        loaded.tokenizer,
        logprobs=body.logprobs,
        include_usage=options[0],
        echo=echo,
    )
    return Job(requests, body, answer, body.stream, options[1])


async def native(service: Service, raw: bytes, caller: Caller) -> Job:
    """POST /generate."""
    service.require_open()
    body = parse_body(GenerateBody, raw)
    if (body.text is None) == (body.input_ids is None):
        raise RequestError("body needs exactly one of text and input_ids", param="text")
    tokens = body.input_ids
    if body.text is not None:
        tokens = await encode(service, body.text, add_special_tokens=True, param="text")
    assert tokens is not None
    sampling = body.sampling_params
    if sampling.min_new_tokens:
        sampling = sampling.model_copy(update={"min_tokens": sampling.min_new_tokens})
    requests = build_requests(
        service,
        [tokens],
        sampling,
        limit=TokenLimit("sampling_params.max_new_tokens", sampling.max_new_tokens, NATIVE_TOKENS),
        logprobs=0,
        namespace=namespace(caller.tenant, None, service.model_id),
        param="text" if body.text is not None else "input_ids",
    )
    answer = NativeFormat(caller.request_id, len(requests))
    return Job(requests, sampling, answer, body.stream, usage_in_events=True)


ROUTES: dict[str, Callable[[Service, bytes, Caller], Awaitable[Job]]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": complete,
    "/generate": native,
}


def _options(options: StreamOptions | None, *, stream: bool) -> tuple[bool, bool]:
    """Return (usage at the end, usage in every event)."""
    if options is None:
        return False, False
    if not stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    # Usage in every event implies the final one.
    return options.include_usage or options.continuous_usage_stats, options.continuous_usage_stats


def _check_completion(body: CompletionBody) -> None:
    if body.best_of is not None and body.best_of != body.n:
        raise RequestError(
            f"best_of is not supported: got {body.best_of}, need n ({body.n}) or nothing",
            param="best_of",
            code="unsupported_parameter",
        )
    if body.echo and body.logprobs is not None:
        raise RequestError(
            "echo with logprobs is not supported: the prompt's log probabilities are not computed",
            param="echo",
            code="unsupported_parameter",
        )


async def _prompts(service: Service, body: CompletionBody) -> list[list[int]]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [await encode(service, prompt, add_special_tokens=True, param="prompt")]
    prompts: list[list[int]] = []
    single: list[int] = []
    for part in prompt:
        if isinstance(part, int):
            single.append(part)
        elif isinstance(part, str):
            prompts.append(await encode(service, part, add_special_tokens=True, param="prompt"))
        else:
            prompts.append(part)
    return prompts or [single]
