"""The simulated device's tokenizer: one byte, one token; a chat template of plain text.

It knows no model; ids above the bytes are accepted, so that recorded token traces can be replayed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llguidance import LLTokenizer

__all__ = ["ByteTokenizer"]

BYTES = 256
END_OF_SEQUENCE = 256
CHAT_TEMPLATE = "<tools>{{ tools }} <role>{{ content }} <tool_call>{{ call }}</tool_call>"
"""What `render_chat` does, in the words by which a template's call format is recognised."""


class ByteTokenizer:
    """See `engine.tokenizer.Tokenizer`; `decode(encode(text)) == text` for every text."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = max(vocab_size, END_OF_SEQUENCE + 1)
        self.eos_ids = frozenset({END_OF_SEQUENCE})
        self.chat_template = CHAT_TEMPLATE

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
        enable_thinking: bool | None = None,
    ) -> str:
        """Return one `<role>text` line a message; a longer chat begins with the shorter one."""
        del enable_thinking
        lines = [f"<tools>{json.dumps(tool)}\n" for tool in tools or ()]
        for message in messages:
            calls = [
                f"<tool_call>{json.dumps(call['function'])}</tool_call>"
                for call in message.get("tool_calls", ())
            ]
            lines.append(f"<{message['role']}>{message['content']}{''.join(calls)}\n")
        return "".join(lines) + ("<assistant>" if add_generation_prompt else "")

    def for_grammars(self) -> LLTokenizer:
        """Return the bytes and the end token; the ids above them are never drawn under a grammar."""
        from llguidance import LLTokenizer, TokenizerWrapper

        return LLTokenizer(TokenizerWrapper(_Bytes()), eos_token=END_OF_SEQUENCE)


class _Bytes:
    """The vocabulary as the grammar library asks for it; 0xFF marks a special token's bytes."""

    eos_token_id = END_OF_SEQUENCE
    bos_token_id = None
    tokens = (*(bytes((byte,)) for byte in range(BYTES)), b"\xff<|end|>")
    special_token_ids = (END_OF_SEQUENCE,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
