"""What a client's `response_format` allows, as a grammar in llguidance's Lark.

It knows JSON schemas as values to pass on, neither tokens nor how a grammar is compiled.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from rampway_server.api.reasoning import Reasoning
    from rampway_server.api.wire import ResponseFormat

__all__ = ["ANY_TEXT", "format_grammar", "json_rule", "whole"]

ANY_TEXT = r"TEXT: /(.|\n)*/"
_OPTIONS = {
    # Models that may put any amount of white space sometimes never stop doing so.
    "whitespace_pattern": r"[ \t\n\r]{0,32}",
    "lenient": False,
}


def format_grammar(wanted: ResponseFormat) -> str | None:
    """Return what stands in a Lark rule for such an answer, None where any text will do."""
    if wanted.type == "text":
        return None
    schema: Any = {"type": "object"}
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise RequestError(
                "response_format.json_schema is missing: need an object with name and schema",
                param="response_format.json_schema",
                code="invalid_value",
            )
        schema = wanted.json_schema.schema_
    elif wanted.json_schema is not None:
        raise RequestError(
            "response_format.json_schema contradicts its type: got json_object, need json_schema",
            param="response_format.json_schema",
            code="invalid_value",
        )
    return json_rule(schema)


def json_rule(schema: Any) -> str:
    """Return what stands in a Lark rule for a value of this schema."""
    if not isinstance(schema, dict):
        return "%json " + json.dumps(schema)
    # Ours last: a client's own options could switch the checks off.
    return "%json " + json.dumps({**schema, "x-guidance": _OPTIONS})


def whole(body: str, reasoning: Reasoning | None, *rules: str) -> str:
    """Return the grammar whose answer is `body`, behind a thought where the model may have one."""
    start, more = body, rules
    if reasoning is not None:
        thought = r'thought[lazy]: TEXT "</think>"'
        begin = "thought WS?" if reasoning.open else '(/\\s*/ "<think>" thought WS?)?'
        start, more = f"{begin} ({body})", (*rules, thought, ANY_TEXT, r"WS: /\s+/")
    return "\n".join(["%llguidance {}", f"start: {start}", *dict.fromkeys(more)])
