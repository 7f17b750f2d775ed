"""Splits what a model thinks, between `<think>` and `</think>`, from what it answers.

It knows text pieces as they come; it never shows a part of a tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Reasoning", "ReasoningSplit", "Split", "held_back"]

BEGIN, END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model that thinks; `open` where its prompt has begun the thought already."""

    open: bool


class Split(NamedTuple):
    """New text of either kind."""

    reasoning: str
    content: str


class ReasoningSplit:
    """Joined, the pieces are the text without its tags and the white space around them."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._thinking = reasoning.open
        self._may_begin = not reasoning.open
        self._trim = True
        self._held = ""

    def push(self, text: str, *, last: bool) -> Split:
        """Return what is known of `text`; with `last` nothing is held back any more."""
        self._held += text
        if self._may_begin:
            start = self._held.lstrip()
            if not last and BEGIN.startswith(start):
                return Split("", "")  # nothing yet, or a part of the tag
            self._may_begin = False
            if start.startswith(BEGIN):
                self._thinking, self._held = True, start[len(BEGIN) :]
            else:
                self._trim = False
        reasoning = ""
        if self._thinking:
            reasoning, ended = self._thought(last=last)
            if not ended:
                return Split(reasoning, "")
        return Split(reasoning, self._answer())

    def _thought(self, *, last: bool) -> tuple[str, bool]:
        """Return the thought's new text, and whether it has ended."""
        before, tag, after = self._held.partition(END)
        if tag:
            shown = self._trimmed(before.rstrip())
            self._thinking, self._trim, self._held = False, True, after
            return shown, True
        # White space may turn out to be the last before the end.
        keep = 0 if last else held_back(before, END)
        shown = before[: len(before) - keep]
        shown = shown if last else shown.rstrip()
        self._held = before[len(shown) :]
        return self._trimmed(shown), False

    def _answer(self) -> str:
        content, self._held = self._held, ""
        return self._trimmed(content)

    def _trimmed(self, text: str) -> str:
        """Return `text` without the white space its kind begins with."""
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return text


def held_back(text: str, tag: str) -> int:
    """Return how many characters at the end of `text` may be the beginning of `tag`."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-size:]):
            return size
    return 0
