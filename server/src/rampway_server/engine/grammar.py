"""Keeps drawn text inside a grammar: which tokens may come next, by llguidance.

It knows no HTTP and no schema: a grammar comes in as Lark text, masks over token ids go out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLParserLimits

if TYPE_CHECKING:
    from llguidance import LLTokenizer
    from numpy.typing import NDArray

__all__ = ["Grammar", "GrammarMask", "fault_of"]

WORD = 32


def _limits() -> LLParserLimits:
    """Return bounds of states and work, the library's own defaults divided by four or more.

    By its authors' figures the fuel of one step is spent in 4 ms and that of building in 5 ms.
    """
    return LLParserLimits(
        initial_lexer_fuel=250_000,
        step_lexer_fuel=50_000,
        step_max_items=20_000,
        max_lexer_states=50_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def fault_of(lark: str) -> str:
    """Return why the grammar cannot be used, "" when it can; may take long, see `api.grammars`."""
    return _first_line(LLMatcher.validate_grammar(lark, limits=_limits()))


class Grammar:
    """A compiled grammar; every sequence that must follow it takes its own mask."""

    def __init__(self, tokenizer: LLTokenizer, lark: str) -> None:
        """Compile `lark`; raises ValueError with the library's words where it cannot be."""
        self._matcher = LLMatcher(tokenizer, lark, log_level=0, limits=_limits())
        self._vocab_size = tokenizer.vocab_size
        self._eos = tuple(tokenizer.eos_tokens)
        if self._matcher.is_error():
            raise ValueError(_first_line(self._matcher.get_error()))

    def mask(self) -> GrammarMask:
        """Return a mask at the grammar's start."""
        return GrammarMask(self._matcher.deep_copy(), self._vocab_size, self._eos)


class GrammarMask:
    """See `engine.batch.TokenMask`; used by the engine's thread, one sequence's own."""

    def __init__(self, matcher: LLMatcher, vocab_size: int, eos: tuple[int, ...]) -> None:
        self._matcher = matcher
        self._eos = eos
        self._vocab_size = vocab_size
        self._words = np.zeros(-(-vocab_size // WORD), dtype=np.int32)
        self._seen: list[int] = []
        self.fault = ""
        """Why the grammar could not be followed to its end; the text ends there."""

    def allowed(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return what may be drawn behind `generated`; only the end where the grammar gave up."""
        self._follow(generated.tolist())
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        if self._matcher.is_error():
            self.fault = self.fault or _first_line(self._matcher.get_error())
            self._words[:] = 0
            for token in self._eos:
                # Through uint32: bit 31 of a signed word is its sign.
                self._words.view(np.uint32)[token // WORD] |= np.uint32(1 << token % WORD)
        bits = np.unpackbits(self._words.view(np.uint8), bitorder="little")
        return bits[: self._vocab_size].view(np.bool_)

    def _follow(self, generated: list[int]) -> None:
        """Bring the matcher behind exactly these tokens."""
        common = 0
        for seen, token in zip(self._seen, generated, strict=False):
            if seen != token:
                break
            common += 1
        if common < len(self._seen):
            self._matcher.rollback(len(self._seen) - common)
        if not self._matcher.is_error():
            self._matcher.consume_tokens(generated[common:])
        self._seen = generated


def _first_line(message: str) -> str:
    """Return the library's message without the grammar it quotes."""
    return str(message).partition("\n")[0].removeprefix("Parser Error: ")
