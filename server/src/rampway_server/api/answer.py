"""Reads a chat answer as it streams: thought, text and tool calls, in the order they come.

It knows text pieces and no wire format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rampway_server.api.calls import ArgumentsDelta, CallDelta, TextDelta
from rampway_server.api.reasoning import ReasoningSplit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.api.reasoning import Reasoning
    from rampway_server.api.tools import CallFormat

__all__ = ["AnswerDelta", "AnswerReader", "AnswerShape", "ThoughtDelta"]


class ThoughtDelta(NamedTuple):
    """More of what the model thinks before it answers."""

    text: str


AnswerDelta = ThoughtDelta | TextDelta | CallDelta | ArgumentsDelta


class AnswerShape(NamedTuple):
    """What an answer may be made of beside text."""

    reasoning: Reasoning | None
    calls: CallFormat | None
    names: Sequence[str] = ()
    """Tools that were offered."""
    parallel: bool = True

    def reader(self) -> AnswerReader | None:
        """Return a reader for one choice; None where all of it is text."""
        return None if self.reasoning is None and self.calls is None else AnswerReader(self)


class AnswerReader:
    """One choice's answer."""

    def __init__(self, shape: AnswerShape) -> None:
        self._split = None if shape.reasoning is None else ReasoningSplit(shape.reasoning)
        self._calls = (
            None if shape.calls is None else shape.calls.read(shape.names, parallel=shape.parallel)
        )

    @property
    def called(self) -> bool:
        """Whether a tool call has begun."""
        return self._calls is not None and self._calls.calls > 0

    def push(self, text: str, *, last: bool) -> list[AnswerDelta]:
        """Return what is known of `text`; with `last` nothing is held back any more."""
        deltas: list[AnswerDelta] = []
        if self._split is not None:
            thought, text = self._split.push(text, last=last)
            if thought:
                deltas.append(ThoughtDelta(thought))
        if self._calls is not None:
            deltas += self._calls.push(text, last=last)
        elif text:
            deltas.append(TextDelta(text))
        return deltas
