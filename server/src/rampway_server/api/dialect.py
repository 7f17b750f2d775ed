"""How one model marks its thoughts and its tool calls, by its chat template or by flags.

It knows a template's text only, and decides once, at start.
"""

from __future__ import annotations

from typing import NamedTuple

from rampway_server.api.tools import FORMATS, CallFormat, detect_format
from rampway_server.errors import UsageError

__all__ = ["REASONING_PARSERS", "TOOL_CALL_PARSERS", "Dialect", "dialect_of"]

TOOL_CALL_PARSERS = ("auto", *FORMATS, "off")
REASONING_PARSERS = ("auto", "qwen3", "off")


class Dialect(NamedTuple):
    """What of a chat answer is no plain text."""

    calls: CallFormat | None
    """None where the model has no tools, or in a format that is not read here."""
    thinks: bool
    can_switch_thinking: bool


def dialect_of(template: str, *, tool_call_parser: str, reasoning_parser: str) -> Dialect:
    """Return the dialect of the model with this template; raises UsageError for a flag it cannot obey."""
    calls = detect_format(template) if tool_call_parser == "auto" else FORMATS.get(tool_call_parser)
    if tool_call_parser in FORMATS and "tools" not in template:
        raise UsageError(
            f"--tool-call-parser {tool_call_parser} has no use: the model's chat template does not"
            " show tools to the model; leave the flag out, or serve a model that was trained for it"
        )
    thinks = reasoning_parser == "qwen3" or (reasoning_parser == "auto" and "</think>" in template)
    return Dialect(calls, thinks, can_switch_thinking="enable_thinking" in template)
