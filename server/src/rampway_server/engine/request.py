"""One sequence on its way through the engine: what was asked, what is computed, what it holds.

It knows neither text nor HTTP nor the order in which others are served.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from rampway_server.engine.batch import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rampway_server.engine.batch import Sampling

__all__ = ["FinishReason", "Phase", "Request", "needs_history"]


class Phase(Enum):
    """Where a request is; WAITING and RUNNING alternate when it is preempted."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(StrEnum):
    """Why no more tokens follow, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


_NEXT = {
    Phase.WAITING: {Phase.RUNNING, Phase.FINISHED},
    Phase.RUNNING: {Phase.WAITING, Phase.FINISHED},
    Phase.FINISHED: set[Phase](),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Request:
    """A prompt, its limits, and the state only the scheduler changes.

    tokens:  0 ..... computed ..... scheduled ..... length ..... prompt_length + max_new_tokens
             KV is in `row`   in flight       to compute      room for what is still to be drawn
    row:     0 .... held .... used
             the tree's     ours

    `scheduled` equals `length` while the next token is being drawn, and is one above it when the
    step behind that one is planned already.
    """

    id: int
    prompt: NDArray[np.int32]
    sampling: Sampling
    max_new_tokens: int
    arrived: float
    """Seconds on the engine's clock; also the age in queue order."""
    min_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    """Drawing one of these ends the sequence, once `min_new_tokens` are drawn."""
    namespace: bytes = b""
    """Only requests of equal namespace share cached pages."""
    priority: int = 0
    """Lower is served first and preempted last."""
    queue_deadline: float = inf
    deadline: float = inf

    phase: Phase = field(default=Phase.WAITING, init=False)
    tokens: NDArray[np.int32] = field(init=False)
    length: int = field(init=False)
    computed: int = field(default=0, init=False)
    scheduled: int = field(default=0, init=False)
    room: int = field(default=0, init=False)
    """Positions below this one need nothing but a decode row of `turns`: no page, other sampling."""
    turns: tuple[Row, Row] | None = field(default=None, init=False)
    """Decode rows for even and odd steps: one may be in flight while the other is planned."""
    next_token: NDArray[np.int32] = field(init=False)
    row: NDArray[np.int32] = field(init=False)
    used: int = field(default=0, init=False)
    held: int = field(default=0, init=False)
    handle: int | None = field(default=None, init=False)
    admitted: float | None = field(default=None, init=False)
    """When it first ran; a preemption does not change it."""
    cached_tokens: int = field(default=0, init=False)
    """Prompt tokens found in the prefix cache at first admission: counted once a request."""
    peeked: int = field(default=0, init=False)
    """Matched tokens as last seen while waiting; only the queue order depends on it."""
    _held_back: Sampling = field(init=False)
    _penalised: bool = field(init=False)

    def __post_init__(self) -> None:
        self.tokens = np.empty(len(self.prompt) + self.max_new_tokens, dtype=np.int32)
        self.length = len(self.prompt)
        self.tokens[: self.length] = self.prompt
        self.row = np.empty(0, dtype=np.int32)
        self.next_token = np.zeros(1, dtype=np.int32)
        self._penalised = needs_history(self.sampling)
        self._held_back = (
            replace(self.sampling, forbidden=(*self.sampling.forbidden, *sorted(self.stop_ids)))
            if self.min_new_tokens and self.stop_ids
            else self.sampling
        )

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt)

    @property
    def generated(self) -> int:
        """Tokens drawn so far."""
        return self.length - len(self.prompt)

    @property
    def remaining(self) -> int:
        """Known tokens whose KV no step computes yet."""
        return self.length - self.scheduled

    @property
    def draws_last(self) -> bool:
        """Whether the last token that may be drawn is being drawn now."""
        return self.scheduled >= len(self.tokens) - 1

    @property
    def waits_for_token(self) -> bool:
        """Whether the next row must know a token that is still being drawn."""
        return self._penalised and self.scheduled >= self.length

    def move_to(self, phase: Phase) -> None:
        """Change the phase; an impossible change is our own bug."""
        if phase not in _NEXT[self.phase]:
            raise AssertionError(f"request {self.id} cannot go from {self.phase} to {phase}")
        self.phase = phase

    def finish_of(self, token: int) -> FinishReason | None:
        """Return why the sequence ends with `token`, its last one, or None."""
        if token in self.stop_ids and self.generated >= self.min_new_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if self.length == len(self.tokens) else None

    def next_row(self, count: int, page_size: int) -> Row:
        """Schedule the next `count` known tokens and return their row; views of this request."""
        start, end = self.scheduled, self.scheduled + count
        self.scheduled = end
        sampling = self._sampling_at(end) if end == self.length else None
        penalised = self._penalised and sampling is not None
        return Row(
            tokens=self.tokens[start:end],
            start=start,
            pages=self.row[: -(-end // page_size)],
            sampling=sampling,
            prompt_ids=self.prompt if penalised else None,
            generated_ids=self.tokens[len(self.prompt) : self.length] if penalised else None,
            next_token=None if sampling is None else self.next_token,
        )

    def decode_row(self, step: int, page_size: int) -> Row:
        """Schedule one position, its token known or being drawn, and return its row.

        The page must be there. Sets `room`: below it the rows of `turns` do.
        """
        if self._penalised:
            return self.next_row(1, page_size)
        start = self.scheduled
        self.scheduled = start + 1
        sampling = self._sampling_at(start + 1)
        pages = self.row[: self.used]
        self.turns = (
            Row(self.next_token, start, pages, sampling, next_token=self.next_token),
            Row(self.next_token, start, pages, sampling, next_token=self.next_token),
        )
        self.room = min(self.used * page_size, len(self.tokens) - 1)
        if sampling is not self.sampling:
            self.room = min(self.room, self.prompt_length + self.min_new_tokens - 1)
        return self.turns[step & 1]

    def _sampling_at(self, position: int) -> Sampling:
        """Return how the token at `position` is drawn: below `min_new_tokens` no stop id may be."""
        early = position - len(self.prompt) < self.min_new_tokens
        return self._held_back if early else self.sampling


def needs_history(sampling: Sampling) -> bool:
    """Whether the draw depends on the tokens before it."""
    return bool(
        sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.repetition_penalty != 1.0
        or sampling.mask is not None
    )
