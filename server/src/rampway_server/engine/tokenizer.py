"""What the engine and the API ask of a tokenizer; how text becomes ids is the model's affair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from llguidance import LLTokenizer

__all__ = ["Tokenizer"]


class Tokenizer(Protocol):
    """Text to token ids and back; safe to call from several threads."""

    vocab_size: int
    eos_ids: frozenset[int]
    """Drawing one of these ends a sequence unless `ignore_eos` is set."""
    chat_template: str
    """The source of the chat template, "" where there is none."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the token ids of `text`."""

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; an incomplete UTF-8 tail decodes to U+FFFD."""

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
    ) -> str:
        """Return the prompt text of a chat by the model's own template; raises ChatTemplateError."""

    def for_grammars(self) -> LLTokenizer:
        """Return the vocabulary as the grammar library reads it; takes up to a second."""
