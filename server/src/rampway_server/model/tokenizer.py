"""The `Tokenizer` of the engine's contract on top of the `tokenizers` library.

It knows ids, text and the chat template, not where vocabulary and template came from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rampway_server.errors import ChatTemplateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import tokenizers
    from llguidance import LLTokenizer

    from rampway_server.model.chat_template import ChatTemplate

__all__ = ["HFTokenizer"]


class HFTokenizer:
    """Text to ids and back; encoding releases the GIL and every method is safe to share."""

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        *,
        eos_ids: frozenset[int],
        chat_template: ChatTemplate | None,
    ) -> None:
        self._core = core
        self._template = chat_template
        self.vocab_size: int = core.get_vocab_size(with_added_tokens=True)
        self.eos_ids = eos_ids
        self.chat_template = chat_template.source if chat_template is not None else ""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; special tokens written out in it become their ids."""
        ids: list[int] = self._core.encode(text, add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; an incomplete UTF-8 tail decodes to U+FFFD.

        Ids outside the vocabulary (padding rows of the embedding) have no text.
        """
        known = [token for token in ids if 0 <= token < self.vocab_size]
        text: str = self._core.decode(known, skip_special_tokens=skip_special_tokens)
        return text

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        enable_thinking: bool | None = None,
    ) -> str:
        """Return the prompt of a chat; raises ChatTemplateError where there is no template.

        The template writes special tokens itself: encode the result without adding them.
        """
        if self._template is None:
            raise ChatTemplateError(
                "this model has no chat template: need the completions endpoint", param="messages"
            )
        return self._template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            enable_thinking=enable_thinking,
        )

    def for_grammars(self) -> LLTokenizer:
        """Return the vocabulary as the grammar library reads it; takes up to a second."""
        from llguidance import LLTokenizer

        return LLTokenizer(self._core.to_str(), eos_token=sorted(self.eos_ids))
