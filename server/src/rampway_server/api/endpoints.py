"""The generation routes: body → requests and the format of the answer; chat has its own module.

They know no socket: `respond` reads the body and sends the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from rampway_server.api.chat import chat
from rampway_server.api.formats import CompletionFormat, NativeFormat
from rampway_server.api.job import Job, usage_wishes
from rampway_server.api.keys import namespace
from rampway_server.api.prompts import Drawing, TokenLimit, build_requests, encode
from rampway_server.api.structured import format_grammar, json_rule, whole
from rampway_server.api.wire import CompletionBody, GenerateBody, parse_body
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rampway_server.api.job import Caller
    from rampway_server.api.service import Service
    from rampway_server.engine.grammar import Grammar

__all__ = ["ROUTES"]

COMPLETION_TOKENS, NATIVE_TOKENS = 16, 128
"""What OpenAI's completions and SGLang's generate draw when nothing is said."""


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
        drawing=Drawing(
            0 if body.logprobs is None else max(1, body.logprobs), await _format(service, body)
        ),
        namespace=namespace(caller.tenant, body.cache_salt, service.model_id),
        param="prompt",
        priority=body.priority,
    )
    options = usage_wishes(body.stream_options, stream=body.stream)
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
        drawing=Drawing(grammar=await _native_schema(service, sampling.json_schema)),
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


async def _format(service: Service, body: CompletionBody) -> Grammar | None:
    answer = format_grammar(body.response_format)
    if answer is None:
        return None
    tokenizer = service.require_open().tokenizer
    return await service.grammars.compile(whole(answer, None), tokenizer, "response_format")


async def _native_schema(service: Service, schema: str | None) -> Grammar | None:
    if schema is None:
        return None
    param = "sampling_params.json_schema"
    try:
        answer = json_rule(orjson.loads(schema))
    except orjson.JSONDecodeError:
        raise RequestError(
            f"{param} is not JSON: need a JSON schema as text", param=param, code="invalid_value"
        ) from None
    tokenizer = service.require_open().tokenizer
    return await service.grammars.compile(whole(answer, None), tokenizer, param)


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
