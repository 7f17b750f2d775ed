"""POST /v1/chat/completions: messages, tools and formats → requests and the shape of the answer.

It knows no socket: `respond` reads the body and sends the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rampway_server.api.answer import AnswerShape
from rampway_server.api.chat_format import ChatFormat
from rampway_server.api.job import Job, usage_wishes
from rampway_server.api.keys import namespace
from rampway_server.api.prompts import Drawing, TokenLimit, build_requests, chat_messages, encode
from rampway_server.api.reasoning import BEGIN, Reasoning
from rampway_server.api.structured import format_grammar, whole
from rampway_server.api.wire import ChatBody, NamedTool, parse_body
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from typing import Any

    from rampway_server.api.dialect import Dialect
    from rampway_server.api.job import Caller
    from rampway_server.api.service import Service
    from rampway_server.api.wire import FunctionSpec, Tool

__all__ = ["chat", "shown_tools"]


async def chat(service: Service, raw: bytes, caller: Caller) -> Job:
    """Return the job of a chat body; raises a 400 for what this model cannot do."""
    loaded = service.require_open()
    body = parse_body(ChatBody, raw)
    service.require_model(body.model)
    if body.top_logprobs and not body.logprobs:
        raise RequestError(
            "top_logprobs needs logprobs: got false, need true", param="top_logprobs"
        )
    tools = _offered(body, loaded.dialect)
    text = loaded.tokenizer.render_chat(
        chat_messages(body.messages),
        add_generation_prompt=body.add_generation_prompt,
        tools=shown_tools(body.tools) if tools else None,
        enable_thinking=_thinking(body, loaded.dialect),
    )
    # The template writes the special tokens itself.
    tokens = await encode(service, text, add_special_tokens=False, param="messages")
    reasoning = Reasoning(text.rstrip().endswith(BEGIN)) if loaded.dialect.thinks else None
    lark, named_by = _grammar(body, tools, loaded.dialect, reasoning)
    grammar = None
    if lark is not None:
        grammar = await service.grammars.compile(lark, loaded.tokenizer, named_by)
    limit = TokenLimit("max_tokens", body.max_tokens)
    if body.max_completion_tokens is not None:
        limit = TokenLimit("max_completion_tokens", body.max_completion_tokens)
    requests = build_requests(
        service,
        [tokens],
        body,
        limit=limit,
        drawing=Drawing(max(1, body.top_logprobs) if body.logprobs else 0, grammar),
        namespace=namespace(caller.tenant, body.cache_salt, service.model_id),
        param="messages",
        priority=body.priority,
    )
    options = usage_wishes(body.stream_options, stream=body.stream)
    answer = ChatFormat(
        f"chatcmpl-{caller.request_id}",
        service.model_id,
        loaded.tokenizer,
        logprobs=body.top_logprobs if body.logprobs else None,
        include_usage=options[0],
        shape=AnswerShape(
            reasoning,
            loaded.dialect.calls if tools else None,
            [tool.name for tool in tools],
            body.parallel_tool_calls,
        ),
    )
    return Job(requests, body, answer, body.stream, options[1])


def shown_tools(tools: list[Tool]) -> list[dict[str, Any]]:
    """Return tools as chat templates read them."""
    return [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in tools]


def _offered(body: ChatBody, dialect: Dialect) -> list[FunctionSpec]:
    """Return the tools the model may call in this answer, checked against the choice."""
    names = [tool.function.name for tool in body.tools]
    choice = body.tool_choice
    if not names:
        if choice not in ("none", "auto"):
            raise RequestError("tool_choice needs tools: got none", param="tool_choice")
        return []
    if dialect.calls is None:
        raise RequestError(
            "tools is not supported with this model: its chat template shows no tools, or its calls"
            " have a format that is not read here (--tool-call-parser)",
            param="tools",
            code="unsupported_parameter",
        )
    if len(set(names)) < len(names):
        raise RequestError("tools have a name twice: need each name once", param="tools")
    if not isinstance(choice, NamedTool):
        return [] if choice == "none" else [tool.function for tool in body.tools]
    if choice.function.name not in names:
        raise RequestError(
            f"tool_choice is not among tools: got {choice.function.name!r}, need one of"
            f" {', '.join(names[:8])}",
            param="tool_choice",
        )
    return [tool.function for tool in body.tools if tool.function.name == choice.function.name]


def _thinking(body: ChatBody, dialect: Dialect) -> bool | None:
    wanted = body.chat_template_kwargs.enable_thinking
    if wanted is not None and not dialect.can_switch_thinking:
        raise RequestError(
            "chat_template_kwargs.enable_thinking is not supported with this model: its chat"
            " template does not know it; leave it out",
            param="chat_template_kwargs.enable_thinking",
            code="unsupported_parameter",
        )
    return wanted


def _grammar(
    body: ChatBody, tools: list[FunctionSpec], dialect: Dialect, reasoning: Reasoning | None
) -> tuple[str | None, str]:
    """Return the grammar the answer must follow, if any, and the field that asks for it."""
    answer = format_grammar(body.response_format)
    if not tools or dialect.calls is None:
        return answer and whole(answer, reasoning), "response_format"
    parallel = body.parallel_tool_calls
    if isinstance(body.tool_choice, NamedTool) or body.tool_choice == "required":
        if answer:
            raise RequestError(
                "response_format contradicts tool_choice: the answer must be a call; drop one",
                param="response_format",
            )
        one = isinstance(body.tool_choice, NamedTool) or not parallel
        return dialect.calls.forced(tools, parallel=not one, reasoning=reasoning), "tools"
    if answer:
        forced = dialect.calls.forced(
            tools, parallel=parallel, reasoning=reasoning, otherwise=answer
        )
        return forced, "response_format"
    if any(tool.strict for tool in tools):
        return dialect.calls.optional(tools, reasoning=reasoning), "tools"
    return None, "tools"
