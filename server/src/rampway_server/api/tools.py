"""Tools: which call format a model speaks, and the grammar that makes it call.

It knows templates and schemas as text; how calls are read back is `calls`' affair.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rampway_server.api.calls import HermesReader, Llama3Reader
from rampway_server.api.structured import ANY_TEXT, json_rule, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.api.calls import CallReader
    from rampway_server.api.reasoning import Reasoning
    from rampway_server.api.wire import FunctionSpec

__all__ = ["FORMATS", "CallFormat", "detect_format"]


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How a family of models writes a call around its name and its arguments."""

    name: str
    reader: type[HermesReader | Llama3Reader]
    before_name: str
    before_arguments: str
    end: str
    between: str

    def read(self, names: Sequence[str], *, parallel: bool) -> CallReader:
        """Return a reader for one answer."""
        return self.reader(names, parallel=parallel)

    def forced(
        self,
        tools: Sequence[FunctionSpec],
        *,
        parallel: bool,
        reasoning: Reasoning | None,
        otherwise: str | None = None,
    ) -> str:
        """Return the grammar of an answer that is one call or, if `parallel`, several.

        `otherwise` is what stands in a Lark rule for the only other answer allowed.
        """
        more = f"({_quoted(self.between)} call)*" if parallel else ""
        body = f"call {more}" if otherwise is None else f"call {more} | {otherwise}"
        return whole(body, reasoning, *self._rules(tools))

    def optional(self, tools: Sequence[FunctionSpec], *, reasoning: Reasoning | None) -> str:
        """Return the grammar of free text whose calls, if there are any, follow their schemas."""
        if self.reader is Llama3Reader:
            # A call is the whole answer, and no other answer begins with a brace.
            body = "call | PLAIN"
            rules = (r"PLAIN: /[^{\s](.|\n)*/", *self._rules(tools, all_strict=False))
        else:
            tag, rest = HermesReader.BEGIN, self.before_name.removeprefix(HermesReader.BEGIN)
            body = "tagged* TEXT"
            rules = (
                f"opened[lazy]: TEXT {_quoted(tag)}",
                "tagged: opened tail",
                *self._rules(tools, begin=rest, rule="tail", all_strict=False),
                ANY_TEXT,
            )
        return whole(body, reasoning, *rules)

    def _rules(
        self,
        tools: Sequence[FunctionSpec],
        *,
        begin: str | None = None,
        rule: str = "call",
        all_strict: bool = True,
    ) -> tuple[str, ...]:
        begin = self.before_name if begin is None else begin
        options = " | ".join(f"{rule}_{at}" for at in range(len(tools)))
        each = [
            f"{rule}_{at}: {_quoted(begin + json.dumps(tool.name) + self.before_arguments)}"
            f" {json_rule(tool.schema_of_arguments(strict=all_strict or tool.strict))}"
            f" {_quoted(self.end)}"
            for at, tool in enumerate(tools)
        ]
        return (f"{rule}: {options}", *each)


FORMATS = {
    "hermes": CallFormat(
        "hermes",
        HermesReader,
        before_name='<tool_call>\n{"name": ',
        before_arguments=', "arguments": ',
        end="}\n</tool_call>",
        between="\n",
    ),
    "llama3_json": CallFormat(
        "llama3_json",
        Llama3Reader,
        before_name='{"name": ',
        before_arguments=', "parameters": ',
        end="}",
        between="; ",
    ),
}


def detect_format(template: str) -> CallFormat | None:
    """Return the format a chat template teaches, None where it knows no tools."""
    # Qwen3-Coder and others put XML into the same tags.
    if "tools" not in template or "<function=" in template:
        return None
    if "<tool_call>" in template:
        return FORMATS["hermes"]
    if '"parameters"' in template or "<|python_tag|>" in template:
        return FORMATS["llama3_json"]
    return None


def _quoted(text: str) -> str:
    return json.dumps(text)
