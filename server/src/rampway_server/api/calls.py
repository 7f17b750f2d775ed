"""Finds tool calls in a model's text as it streams: hermes/qwen tags, or Llama 3's bare JSON.

It knows text pieces and the names of the tools that were offered. What is no well-formed call of
one of them is text, and every character is looked at once.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rampway_server.api.reasoning import held_back

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "ArgumentsDelta",
    "CallDelta",
    "CallReader",
    "Delta",
    "HermesReader",
    "Llama3Reader",
    "TextDelta",
]

ARGUMENT_KEYS = ("arguments", "parameters")
NO_ARGUMENTS = "{}"


class TextDelta(NamedTuple):
    """Text that is part of no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A call begins; its arguments follow."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of a call's arguments, as JSON text."""

    index: int
    text: str


Delta = TextDelta | CallDelta | ArgumentsDelta


class CallReader(Protocol):
    """Reads one answer."""

    calls: int
    """How many calls have begun."""

    def push(self, text: str, *, last: bool) -> list[Delta]:
        """Return what is known of `text`; with `last` nothing is held back any more."""


class HermesReader:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, several, behind any text."""

    BEGIN, END = "<tool_call>", "</tool_call>"

    def __init__(self, names: Iterable[str], *, parallel: bool) -> None:
        self._names = frozenset(names)
        self._parallel = parallel
        self._text = ""
        """Not given out yet: white space or a part of a tag."""
        self._call: _Call | None = None
        self._muted = False
        """The call is one too many: it is read, and not given out."""
        self._closing = False
        self.calls = 0

    def push(self, text: str, *, last: bool) -> list[Delta]:
        """See `CallReader`."""
        self._text += text
        deltas: list[Delta] = []
        while self._step(deltas, last=last):
            pass
        return _joined(deltas)

    def _step(self, deltas: list[Delta], *, last: bool) -> bool:
        """Do one thing with the text; False when more is needed."""
        if self._call is not None:
            return self._in_call(self._call, deltas, last=last)
        if self._closing:
            return self._after_call()
        before, tag, after = self._text.partition(self.BEGIN)
        if tag:
            if before.strip():
                deltas.append(TextDelta(before.rstrip()))
            self._muted = bool(self.calls) and not self._parallel
            self._text, self._call = after, _Call(self._names, self.calls)
            return True
        keep = 0 if last else held_back(before, self.BEGIN)
        shown = before[: len(before) - keep]
        if not last:
            shown = shown.rstrip()
        # White space between calls and behind the last one is no text.
        if shown and not (self.calls and not shown.strip()):
            deltas.append(TextDelta(shown))
        self._text = before[len(shown) :]
        return False

    def _in_call(self, call: _Call, deltas: list[Delta], *, last: bool) -> bool:
        self._text = call.push(self._text, [] if self._muted else deltas)
        if not (call.done or call.failed or last):
            return False
        self._call, self._closing = None, call.begun
        if call.begun:
            self.calls += not self._muted
        else:
            deltas.append(TextDelta(self.BEGIN + call.raw()))
        return True

    def _after_call(self) -> bool:
        """Drop what is left of the call with its end tag."""
        before, tag, after = self._text.partition(self.END)
        if tag:
            self._text, self._closing = after, False
            return True
        self._text = before[len(before) - held_back(before, self.END) :]
        return False


class Llama3Reader:
    """`{"name": ..., "parameters": {...}}` as the whole answer, several with `;` between them."""

    TAG = "<|python_tag|>"

    def __init__(self, names: Iterable[str], *, parallel: bool) -> None:
        self._names = frozenset(names)
        self._parallel = parallel
        self._text = ""
        self._call: _Call | None = None
        self._plain = False
        self.calls = 0

    def push(self, text: str, *, last: bool) -> list[Delta]:
        """See `CallReader`."""
        self._text += text
        deltas: list[Delta] = []
        while not self._plain and self._step(deltas, last=last):
            pass
        if self._plain and self._text:
            deltas.append(TextDelta(self._text))
            self._text = ""
        return _joined(deltas)

    def _step(self, deltas: list[Delta], *, last: bool) -> bool:
        if self._call is None:
            return self._between(last=last)
        call = self._call
        self._text = call.push(self._text, deltas)
        if call.failed or (last and not call.done):
            self._call = None
            if call.begun:
                self.calls = call.index + 1
                self._text = ""
            else:
                self._plain, self._text = True, call.raw() + self._text
        elif call.done:
            self._call, self.calls = None, call.index + 1
        return call.done

    def _between(self, *, last: bool) -> bool:
        """Begin a call at `{`; anything else than separators is text."""
        rest = (
            self._text.lstrip(" \t\r\n;" if self.calls else " \t\r\n")
            .removeprefix(self.TAG)
            .lstrip()
        )
        if self.calls and (not rest or not self._parallel):
            self._text = ""
            return False
        if not rest or (not last and self.TAG.startswith(rest)):
            self._plain = last
            return False
        if not rest.startswith("{"):
            self._plain = True
            return False
        self._text, self._call = rest, _Call(self._names, self.calls)
        return True


@dataclass(slots=True)
class _Call:
    """One call's JSON object, read a character at a time."""

    names: frozenset[str]
    index: int
    name: str | None = None
    begun: bool = False
    done: bool = False
    failed: bool = False
    _depth: int = 0
    _in_string: bool = False
    _escaped: bool = False
    _key: str = ""
    _at_value: bool = False
    _has_arguments: bool = False
    # Lists of pieces: a growing string would be copied for every character.
    _raw: list[str] = field(default_factory=list)
    _item: list[str] = field(default_factory=list)
    """The key or the value at depth 1 that is being read."""
    _arguments: list[str] = field(default_factory=list)
    """Not given out yet."""

    def raw(self) -> str:
        """Return all that was read, until the call begins."""
        return "".join(self._raw)

    def push(self, text: str, deltas: list[Delta]) -> str:
        """Read `text` up to the object's end or the first fault; return what is behind it."""
        end = len(text)
        for at, char in enumerate(text):
            self._read(char, deltas)
            if self.done or self.failed:
                end = at + 1
                break
        self._flush(deltas)
        if not self.begun:
            self._raw.append(text[:end])
        return text[end:]

    def _read(self, char: str, deltas: list[Delta]) -> None:
        if self._in_string:
            self._take(char)
            self._in_string = self._escaped or char != '"'
            self._escaped = not self._escaped and char == "\\"
        elif self._depth == 0:
            self._depth = int(char == "{")
            self.failed = not (char == "{" or char.isspace())
        elif self._depth == 1 and char in ":,}":
            self._end_item(char, deltas)
        else:
            self._depth += (char in "{[") - (char in "}]")
            self._in_string = char == '"'
            self._take(char)

    def _take(self, char: str) -> None:
        in_arguments = self._at_value and self._key in ARGUMENT_KEYS
        (self._arguments if in_arguments else self._item).append(char)

    def _end_item(self, char: str, deltas: list[Delta]) -> None:
        """Take a finished key (before `:`) or value (before `,` or `}`)."""
        item, self._item = "".join(self._item).strip(), []
        if char == ":":
            self._key, self._at_value = _string(item) or "", True
            self._has_arguments |= self._key in ARGUMENT_KEYS
            return
        if self._at_value and self._key == "name":
            self.name = _string(item)
            self.failed = self.name not in self.names
        self._at_value = False
        if char == "}" and not self.failed:
            self.failed = self.name is None
            self.done = not self.failed
            if self.done and not self._has_arguments:
                self._arguments = [NO_ARGUMENTS]
        self._flush(deltas)

    def _flush(self, deltas: list[Delta]) -> None:
        """Give out arguments once the tool's name is known."""
        if self.name is None or self.failed or not self._arguments:
            return
        text = "".join(self._arguments)
        if not self.begun:
            text = text.lstrip()
            if text and text[0] != "{":
                if self._at_value and not self.done:
                    return
                text = _unwrapped(text)
                self.failed = not text
                self.done = self.done and not self.failed
            if not text:
                return
            self.begun = True
            deltas.append(CallDelta(self.index, f"call_{secrets.token_hex(12)}", self.name))
        self._arguments = []
        deltas.append(ArgumentsDelta(self.index, text))


def _unwrapped(text: str) -> str:
    """Return the object in arguments that are a string of JSON, or null; "" for anything else."""
    text = text.strip()
    if text == "null":
        return NO_ARGUMENTS
    inner = _string(text) or ""
    return inner if inner.lstrip().startswith("{") else ""


def _string(item: str) -> str | None:
    try:
        value = json.loads(item)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def _joined(deltas: list[Delta]) -> list[Delta]:
    """Return the deltas with neighbours of one kind made one."""
    joined: list[Delta] = []
    for delta in deltas:
        previous = joined[-1] if joined else None
        if isinstance(delta, TextDelta) and isinstance(previous, TextDelta):
            joined[-1] = TextDelta(previous.text + delta.text)
        elif (
            isinstance(delta, ArgumentsDelta)
            and isinstance(previous, ArgumentsDelta)
            and previous.index == delta.index
        ):
            joined[-1] = ArgumentsDelta(delta.index, previous.text + delta.text)
        else:
            joined.append(delta)
    return joined
