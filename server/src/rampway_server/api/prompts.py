"""From a checked body to engine requests: tokens, limits against the model, seeds, deadlines.

It knows no wire format beyond the shared sampling fields.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from rampway_server.engine.batch import Sampling
from rampway_server.engine.request import Request
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rampway_server.api.service import Service
    from rampway_server.api.wire import Message, SamplingBody, ToolCall
    from rampway_server.engine.grammar import Grammar

__all__ = ["Drawing", "TokenLimit", "build_requests", "chat_messages", "encode"]

INLINE_CHARACTERS = 2048
"""Shorter texts are tokenized on the loop: a thread hand-over would cost more."""
MAX_CHARACTERS_PER_TOKEN = 64
"""Longer texts cannot fit and are refused before they are tokenized."""


class TokenLimit(NamedTuple):
    """How many tokens may be drawn, and which field said so."""

    field: str
    wanted: int | None
    default: int | None = None
    """When nothing was said, cut to what the context leaves; None is all it leaves."""


class Drawing(NamedTuple):
    """What a draw must report and obey beside the body's own fields."""

    logprobs: int = 0
    grammar: Grammar | None = None


async def encode(service: Service, text: str, *, add_special_tokens: bool, param: str) -> list[int]:
    """Return the tokens of `text`; long texts are encoded off the loop."""
    loaded = service.require_open()
    longest = loaded.context_length * MAX_CHARACTERS_PER_TOKEN
    if len(text) > longest:
        raise RequestError(
            f"{param} is too long: got {len(text)} characters, need at most {longest}",
            param=param,
            code="context_length_exceeded",
        )

    def work() -> list[int]:
        return loaded.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    if len(text) <= INLINE_CHARACTERS:
        return work()
    return await asyncio.get_running_loop().run_in_executor(service.tokenizing, work)


def chat_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as chat templates read them: content is one string."""
    flat = []
    for index, message in enumerate(messages):
        content = message.content
        if isinstance(content, list):
            content = "".join(part.text for part in content)
        entry: dict[str, Any] = {"role": message.role, "content": content or ""}
        for name in ("name", "tool_call_id", "reasoning_content"):
            if (value := getattr(message, name)) is not None:
                entry[name] = value
        if message.tool_calls:
            entry["tool_calls"] = [
                _call_entry(call, f"messages[{index}].tool_calls[{at}]")
                for at, call in enumerate(message.tool_calls)
            ]
        flat.append(entry)
    return flat


def _call_entry(call: ToolCall, where: str) -> dict[str, Any]:
    """Return a call with its arguments as a value: templates write them as JSON themselves."""
    try:
        arguments = orjson.loads(call.function.arguments or "{}")
    except orjson.JSONDecodeError:
        raise RequestError(
            f"{where}.function.arguments is not JSON: need an object as JSON text",
            param=f"{where}.function.arguments",
            code="invalid_value",
        ) from None
    function = {"name": call.function.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def build_requests(
    service: Service,
    prompts: Sequence[Sequence[int]],
    body: SamplingBody,
    *,
    limit: TokenLimit,
    drawing: Drawing,
    namespace: bytes,
    param: str,
    priority: int = 0,
) -> list[Request]:
    """Return `n` requests a prompt, prompt by prompt; raises a 400 for what the model cannot do.

    Choice k of a prompt draws with the seed plus k.
    """
    if drawing.grammar is not None:
        _require_free_end(body)
    loaded = service.require_open()
    now = time.monotonic()
    settings = service.settings
    eos = loaded.tokenizer.eos_ids
    vocab_size = loaded.limits.vocab_size
    stop_ids = frozenset(body.stop_token_ids) | (frozenset() if body.ignore_eos else eos)
    bias = _logit_bias(body.logit_bias, vocab_size)
    seed = body.seed if body.seed is not None else secrets.randbits(63)
    requests = []
    for tokens in prompts:
        array = _checked_tokens(tokens, vocab_size, param)
        budget = _budget(len(array), loaded.context_length, limit, param)
        requests += [
            Request(
                id=service.next_id(),
                prompt=array,
                sampling=_sampling(body, (seed + choice) % 2**63, bias, drawing),
                max_new_tokens=budget,
                min_new_tokens=min(body.min_tokens, budget),
                stop_ids=stop_ids,
                namespace=namespace,
                priority=priority,
                arrived=now,
                queue_deadline=now + settings.queue_timeout_seconds,
                deadline=now + settings.request_timeout_seconds,
            )
            for choice in range(body.n)
        ]
    return requests


def _sampling(
    body: SamplingBody,
    seed: int,
    bias: tuple[tuple[int, float], ...],
    drawing: Drawing,
) -> Sampling:
    return Sampling(
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=max(body.top_k, 0),
        min_p=body.min_p,
        seed=seed,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        logit_bias=bias,
        logprobs=drawing.logprobs,
        mask=None if drawing.grammar is None else drawing.grammar.mask(),
    )


def _require_free_end(body: SamplingBody) -> None:
    """A grammar says where the text ends: refuse what forbids the end there."""
    for name, value in (("ignore_eos", body.ignore_eos), ("min_tokens", body.min_tokens)):
        if value:
            raise RequestError(
                f"{name} contradicts a grammar, which ends the text itself: got {value}, leave it"
                " out, or leave response_format and the forced tool_choice out",
                param=name,
                code="invalid_value",
            )


def _checked_tokens(tokens: Sequence[int], vocab_size: int, param: str) -> np.ndarray[Any, Any]:
    if not len(tokens):
        raise RequestError(
            f"{param} is empty: need at least one token", param=param, code="invalid_value"
        )
    array = np.asarray(tokens, dtype=np.int32)
    highest = int(array.max())
    if highest >= vocab_size:
        raise RequestError(
            f"{param} holds an unknown token: got {highest}, need less than {vocab_size}",
            param=param,
            code="invalid_value",
        )
    return array


def _budget(prompt: int, context: int, limit: TokenLimit, param: str) -> int:
    if prompt >= context:
        raise RequestError(
            f"{param} is too long: got {prompt} tokens, need at most {context - 1}"
            f" with a context of {context}",
            param=param,
            code="context_length_exceeded",
        )
    left = context - prompt
    if limit.wanted is None:
        return left if limit.default is None else min(limit.default, left)
    if limit.wanted > left:
        raise RequestError(
            f"{limit.field} is too high: got {limit.wanted} after a prompt of {prompt} tokens,"
            f" need at most {left} with a context of {context}",
            param=limit.field,
            code="context_length_exceeded",
        )
    return limit.wanted


def _logit_bias(bias: Mapping[str, float], vocab_size: int) -> tuple[tuple[int, float], ...]:
    pairs = []
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) < 11 and int(key) < vocab_size):
            raise RequestError(
                f"logit_bias has a wrong key: got {key[:32]!r}, need a token id below {vocab_size}",
                param="logit_bias",
                code="invalid_value",
            )
        pairs.append((int(key), value))
    return tuple(pairs)
