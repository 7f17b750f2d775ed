"""The simulated device's tokenizer: one byte, one token; a chat template of plain text.

It knows no model; ids above the bytes are accepted, so that recorded token traces can be replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ByteTokenizer"]

BYTES = 256
END_OF_SEQUENCE = 256


class ByteTokenizer:
    """See `engine.tokenizer.Tokenizer`; `decode(encode(text)) == text` for every text."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = max(vocab_size, END_OF_SEQUENCE + 1)
        self.eos_ids = frozenset({END_OF_SEQUENCE})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the UTF-8 bytes; there is no beginning-of-sequence token to add."""
        del add_special_tokens
        return list(text.encode("utf-8", errors="replace"))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the bytes as text; an id that is no byte reads as its number in brackets."""
        parts: list[bytes] = []
        for token in ids:
            if token < BYTES:
                parts.append(bytes((token,)))
            elif token != END_OF_SEQUENCE:
                parts.append(f"[{token}]".encode())
            elif not skip_special_tokens:
                parts.append(b"<|end|>")
        return b"".join(parts).decode("utf-8", errors="replace")

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return one `<role>text` line a message; a longer chat begins with the shorter one."""
        del tools
        lines = [f"<{message['role']}>{message['content']}\n" for message in messages]
        return "".join(lines) + ("<assistant>" if add_generation_prompt else "")
