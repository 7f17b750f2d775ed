"""The whole contract between scheduler and model: a `Batch` goes in, a `StepResult` comes out.

It knows neither requests nor tensors: rows are token ids, positions and page ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Batch",
    "Row",
    "Runner",
    "RunnerLimits",
    "Sample",
    "Sampling",
    "StepResult",
    "TokenMask",
    "hand_on",
]


class TokenMask(Protocol):
    """Which tokens may come next by a grammar; each sequence has its own."""

    fault: str
    """Why the grammar could not be followed to its end, "" as long as it can."""

    def allowed(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return, a token id each, what may be drawn behind these drawn tokens; never all False.

        It depends on the tokens alone, so a draw that was thrown away leaves nothing behind.
        """


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a row's next token is drawn; equal fields at an equal position draw the same token."""

    temperature: float = 1.0
    """0 means greedy: the highest logit, lowest token id on a tie."""
    top_p: float = 1.0
    top_k: int = 0
    """0 means all tokens."""
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added logit) pairs."""
    forbidden: tuple[int, ...] = ()
    """Token ids that must not be drawn now (end-of-sequence before `min_tokens`, for example)."""
    logprobs: int = 0
    """How many of the most likely tokens to report beside the drawn one; 0 reports none."""
    mask: TokenMask | None = None
    """A grammar the text must follow; ids past the end of what it allows are forbidden, too."""
    is_plain: bool = field(init=False, compare=False)
    """Whether the highest logit is drawn and nothing but the token is reported: the usual row."""

    def __post_init__(self) -> None:
        plain = self.temperature == 0 and not (
            self.presence_penalty
            or self.frequency_penalty
            or self.repetition_penalty != 1.0
            or self.logit_bias
            or self.forbidden
            or self.logprobs
            or self.mask is not None
        )
        object.__setattr__(self, "is_plain", plain)


@dataclass(slots=True)
class Row:
    """One sequence's share of a step: compute `tokens` at positions `start ...`, maybe sample.

    A decoding sequence's rows are made once and moved on in place, two in turns: a row is as it was
    planned until the result of its step is known.

    ruler:   0 ............ start ............ start + len(tokens)
             already in KV    computed now       sampled next, if `sampling` is set
    """

    tokens: NDArray[np.int32]
    """Token ids to compute now, at least one."""
    start: int
    """Position of `tokens[0]`; every earlier position's KV is in `pages` already."""
    pages: NDArray[np.int32]
    """Page ids that hold positions `0 .. start + len(tokens)`, in order."""
    sampling: Sampling | None = None
    """None for a prompt chunk that is not the last one: nothing is drawn."""
    prompt_ids: NDArray[np.int32] | None = None
    """The whole prompt; set only when a penalty or a mask needs it."""
    generated_ids: NDArray[np.int32] | None = None
    """Tokens drawn so far; set only when a penalty or a mask needs it."""
    next_token: NDArray[np.int32] | None = None
    """Where the drawn token goes (`hand_on`): the one token of the sequence's next row, which may be
    planned before this one is computed. None where nothing is drawn, or nobody goes on."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One engine step; `rows` keep their order in the result."""

    step: int
    rows: tuple[Row, ...]


class Sample(NamedTuple):
    """One drawn token and, when asked for, its log probability and the most likely others."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step drew: one entry a row, None where the row did not sample."""

    samples: tuple[Sample | None, ...]


def hand_on(batch: Batch, result: StepResult) -> None:
    """Write each drawn token where its sequence's next row reads it."""
    for row, sample in zip(batch.rows, result.samples, strict=True):
        if sample is not None and row.next_token is not None:
            row.next_token[0] = sample.token


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """What the device can hold, known once the model is loaded."""

    num_pages: int
    """Pages of the KV pool, page 0 included (reserved, never given to a sequence)."""
    page_size: int
    context_length: int
    vocab_size: int


class Runner(Protocol):
    """Runs batches on one device. One thread calls it, one step at a time."""

    @property
    def limits(self) -> RunnerLimits:
        """Pool, page and context sizes; constant after construction."""

    def warm_up(self) -> None:
        """Run every shape that serving needs once (kernels, graphs); raises if one fails."""

    def run(self, batch: Batch) -> StepResult:
        """Compute the batch, write its KV into the rows' pages and draw the rows that sample."""

    def longest_step_seconds(self, max_batched_tokens: int) -> float:
        """An upper bound for one legal step, for the liveness probe."""
