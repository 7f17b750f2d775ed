"""Renders a model's own Jinja chat template in a sandbox with limits.

It knows messages and text, neither token ids nor HTTP. A template comes with the weights and the
messages come from a client, so neither may reach Python, the file system or all the memory.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rampway_server.errors import ChatTemplateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ChatTemplate"]

_TEMPLATE_LIMIT = 256 << 10  # characters of the template
_OUTPUT_LIMIT = 8 << 20  # characters of one rendered chat
_REPEAT_LIMIT = 1 << 20  # elements of a repeated string or list
_POWER_LIMIT = 64


class ChatTemplate:
    """A compiled template and the special tokens it may name; safe to share between threads."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Compile `source`; raises UsageError where it is no Jinja or too long."""
        if len(source) > _TEMPLATE_LIMIT:
            raise UsageError(
                f"chat template is too long: got {len(source)} characters, need at most {_TEMPLATE_LIMIT}"
            )
        self.source = source
        self._special = dict(special_tokens)
        try:
            self._template = _environment().from_string(source)
        except (jinja2.TemplateError, RecursionError, MemoryError) as error:
            raise UsageError(f"chat template does not compile: {_one_line(error)}") from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None,
        enable_thinking: bool | None = None,
    ) -> str:
        """Return the prompt text; raises ChatTemplateError for anything the template refuses.

        `enable_thinking` is left undefined where it is None: then the template's own default holds.

        A message whose content is a list of text parts is flattened first: many templates
        concatenate `content` as a string.
        """
        flat = [_flattened(index, message) for index, message in enumerate(messages)]
        chosen = {} if enable_thinking is None else {"enable_thinking": enable_thinking}
        try:
            return self._bounded(
                messages=flat,
                add_generation_prompt=add_generation_prompt,
                tools=[dict(tool) for tool in tools] if tools else None,
                **chosen,
                **self._special,
            )
        except (_Refused, SecurityError) as error:
            raise ChatTemplateError(str(error), param="messages") from None
        except ChatTemplateError:
            raise
        except Exception as error:  # a template may raise any Python error
            raise ChatTemplateError(
                f"the model's chat template failed on these messages: {_one_line(error)}",
                param="messages",
            ) from None

    def _bounded(self, **context: object) -> str:
        parts: list[str] = []
        size = 0
        for part in self._template.generate(**context):
            size += len(part)
            if size > _OUTPUT_LIMIT:
                raise ChatTemplateError(
                    f"the rendered chat is too long: need at most {_OUTPUT_LIMIT} characters",
                    param="messages",
                )
            parts.append(part)
        return "".join(parts)


class _Refused(Exception):
    """The template called `raise_exception`: its own words for the client."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which a small expression cannot make a huge value either."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Return `left operator right`, refusing what would fill the memory."""
        if operator == "**" and (abs(left) > _REPEAT_LIMIT or abs(right) > _POWER_LIMIT):
            raise SecurityError("the chat template computes a number that is too large")
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                sized = isinstance(value, str | bytes | list | tuple)
                if sized and isinstance(times, int) and len(value) * times > _REPEAT_LIMIT:
                    raise SecurityError("the chat template repeats a value too often")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Sandbox:
    """Return the environment that transformers' templates are written for."""
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


def _flattened(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(message)
    content = flat.get("content")
    if content is None:
        flat["content"] = ""
    elif isinstance(content, list | tuple):
        flat["content"] = "".join(_part_text(index, at, part) for at, part in enumerate(content))
    elif not isinstance(content, str):
        raise ChatTemplateError(
            f"messages[{index}].content has the wrong type: got {type(content).__name__}, "
            "need a string or a list of text parts",
            param=f"messages[{index}].content",
        )
    return flat


def _part_text(index: int, at: int, part: object) -> str:
    if isinstance(part, str):
        return part
    where = f"messages[{index}].content[{at}]"
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    text = part.get("text") if isinstance(part, dict) and kind == "text" else None
    if not isinstance(text, str):
        raise ChatTemplateError(
            f"{where} cannot be read: got part type {kind!r}, need 'text' with a string `text`",
            param=where,
        )
    return text


def _to_json(value: object, indent: int | None = None) -> str:
    # Not Jinja's own: that one escapes < and > for HTML, which models have never seen.
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise_exception(message: str) -> str:
    raise _Refused(message)


def _strftime_now(layout: str) -> str:
    return datetime.now(UTC).strftime(layout)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]
