"""Turns a growing list of token ids into text pieces, and finds stop strings in them.

It knows no model: any `Tokenizer` will do, and one `Detokenizer` serves one sequence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rampway_server.engine.tokenizer import Tokenizer

__all__ = ["Detokenizer", "Piece"]

REPLACEMENT = "\ufffd"
MAX_OPEN_CHARACTERS = 3
"""What is known of a UTF-8 character without its end, at most three bytes, decodes to one to three
replacement characters; those before them will not change any more."""
MAX_WINDOW, KEPT_WINDOW = 64, 8
"""Tokens decoded together when text never comes to a clean end, and how many are kept of them."""


class Piece(NamedTuple):
    """Text that may be shown now; `stopped` when a stop string ended the sequence."""

    text: str
    stopped: bool = False


class Detokenizer:
    """Joined, the pieces are `tokenizer.decode(all ids)`, cut at the first stop string.

    Never gives half a UTF-8 character, nor text that may still turn out to begin a stop string.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        skip_special_tokens: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special_tokens
        self._stop = tuple(stop)
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._seen = 0
        # Decoding is not local (SentencePiece drops a leading space): the window is the last known
        # good tokens and the new ones, and its first `_shown` characters have been given out.
        self._window: list[int] = []
        self._context = 0
        self._shown = 0
        self._held = ""

    def push(self, token: int, *, last: bool = False) -> Piece:
        """Return the text that `token` adds; with `last` nothing is held back any more."""
        self._seen += 1
        self._window.append(token)
        return self._cut(self._new_text(last=last), last=last)

    def flush(self) -> Piece:
        """Return what is still held back, when the sequence ended without a last token."""
        return self._cut(self._new_text(last=True), last=True)

    def _new_text(self, *, last: bool) -> str:
        text = self._decode(self._window)
        still_open = 0 if last else _open_characters(text)
        end = max(self._shown, len(text) - still_open)
        fresh, self._shown = text[self._shown : end], end
        if fresh and not still_open:
            self._shrink(self._context, still_open)
            self._context = len(self._window)
        elif len(self._window) > MAX_WINDOW:
            self._shrink(len(self._window) - KEPT_WINDOW, still_open)
            self._context = 0
        return fresh

    def _shrink(self, drop: int, still_open: int) -> None:
        self._window = window = self._window[drop:]
        if len(window) == 1:
            size = _length_alone(self._tokenizer, window[0], self._skip_special)  # type: ignore[arg-type]  # a protocol states no hash, every object has one
        else:
            size = len(self._decode(window))
        self._shown = size - still_open

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=self._skip_special)

    def _cut(self, text: str, *, last: bool) -> Piece:
        if not self._stop:
            return Piece(text)
        self._held += text
        if self._seen > self._min_tokens or last:
            found = self._find_stop()
            if found is not None:
                shown, self._held = self._held[:found], ""
                return Piece(shown, stopped=True)
        keep = 0 if last else self._possible_stop_prefix()
        shown, self._held = self._held[: len(self._held) - keep], self._held[-keep:] if keep else ""
        return Piece(shown)

    def _find_stop(self) -> int | None:
        """Return where to cut: at the stop string that begins first, or behind it."""
        hits = [(at, stop) for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if not hits:
            return None
        at, stop = min(hits)
        return at + len(stop) if self._include_stop else at

    def _possible_stop_prefix(self) -> int:
        """Return how many characters at the end could be the beginning of a stop string."""
        longest = max(len(stop) for stop in self._stop) - 1
        for size in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stop):
                return size
        return 0


@lru_cache(maxsize=1 << 16)
def _length_alone(tokenizer: Tokenizer, token: int, skip_special: bool) -> int:  # noqa: FBT001 - a key
    """Return how long a token's text is by itself: the usual window, and there are few of them."""
    return len(tokenizer.decode([token], skip_special_tokens=skip_special))


def _open_characters(text: str) -> int:
    size = len(text)
    bare = len(text[max(0, size - MAX_OPEN_CHARACTERS) :].rstrip(REPLACEMENT))
    return min(size, MAX_OPEN_CHARACTERS) - bare
