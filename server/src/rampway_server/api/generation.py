"""One HTTP call's choices: engine outputs in, text pieces out, stopped at the client's stop strings.

It knows no wire format.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rampway_server.engine.detokenizer import Detokenizer
from rampway_server.engine.request import FinishReason
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from rampway_server.api.bridge import Bridge, Came, Stream
    from rampway_server.api.wire import SamplingBody
    from rampway_server.engine.batch import Sample
    from rampway_server.engine.request import Request
    from rampway_server.engine.tokenizer import Tokenizer

__all__ = ["Choice", "Event", "Generation", "Usage"]


@dataclass(slots=True)
class Event:
    """What one step adds to one choice."""

    index: int
    text: str
    samples: list[Sample]
    """The tokens behind `text`, with those whose text was held back before."""
    finish: FinishReason | None
    completion_tokens: int
    """Tokens of all choices up to this event."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one HTTP call; prompts count once, however many choices they have."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class Choice:
    """One sequence's progress."""

    request: Request
    detokenizer: Detokenizer
    finish: FinishReason | None = None
    held: list[Sample] = field(default_factory=list)


class Generation:
    """Runs the requests of one call; `close` must be called once, however it ends."""

    def __init__(
        self,
        bridge: Bridge,
        tokenizer: Tokenizer,
        requests: list[Request],
        body: SamplingBody,
    ) -> None:
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
        self._bridge = bridge
        self._choices_per_prompt = body.n
        # The token that ends a sequence has no text, unless the client asked to see it.
        self._silent = frozenset() if not body.skip_special_tokens else tokenizer.eos_ids
        self._shows_stop_ids = body.include_stop_str_in_output
        self.choices = [
            Choice(
                request,
                Detokenizer(
                    tokenizer,
                    stop=stop,
                    include_stop=body.include_stop_str_in_output,
                    min_tokens=request.min_new_tokens,
                    skip_special_tokens=body.skip_special_tokens,
                ),
            )
            for request in requests
        ]
        self._open = len(self.choices)
        self._tokens = 0
        self.stream: Stream = bridge.open(requests)

    @property
    def done(self) -> bool:
        """Whether every choice has finished."""
        return self._open == 0

    async def events(self) -> list[Event]:
        """Return what came since the last call, waiting for something; raises a failed choice's error."""
        events: list[Event] = []
        while not events and not self.done:
            for came in await self.stream.take():
                if came.error is not None:
                    raise came.error
                event = self._advance(came)
                if event is not None:
                    events.append(event)
        return events

    def usage(self, event: Event | None = None) -> Usage:
        """Return the counts so far, or as of `event`."""
        firsts = range(0, len(self.choices), self._choices_per_prompt)
        return Usage(
            sum(self.choices[i].request.prompt_length for i in firsts),
            self._tokens if event is None else event.completion_tokens,
            sum(self.stream.cached_tokens.get(i, 0) for i in firsts),
        )

    def close(self) -> None:
        """Abort what still runs; safe to call when all is finished."""
        self._bridge.close([choice.request.id for choice in self.choices])

    def _advance(self, output: Came) -> Event | None:
        index = output.choice
        choice = self.choices[index]
        # A stop string ended it here; the engine may have drawn a token more meanwhile.
        if choice.finish is not None or output.sample is None:
            return None
        self._tokens += 1
        choice.held.append(output.sample)
        text, choice.finish = self._text_of(choice, output, output.sample.token)
        if choice.finish is not None:
            _require_followed(choice.request)
            self._open -= 1
            if output.finish is None:
                self._bridge.close([choice.request.id])
        if not text and choice.finish is None:
            return None
        samples, choice.held = choice.held, []
        return Event(index, text, samples, choice.finish, self._tokens)

    def _text_of(self, choice: Choice, output: Came, token: int) -> tuple[str, FinishReason | None]:
        ends = output.finish is FinishReason.STOP
        if ends and (token in self._silent or not self._shows_stop_ids):
            piece = choice.detokenizer.flush()
        else:
            piece = choice.detokenizer.push(token, last=output.finish is not None)
        return piece.text, FinishReason.STOP if piece.stopped else output.finish


def _require_followed(request: Request) -> None:
    """Raise a 400 when the grammar gave up: the text it left is not what was asked for."""
    mask = request.sampling.mask
    if mask is not None and mask.fault:
        raise RequestError(
            f"the grammar is too complex to be followed: {mask.fault}; make the schema simpler",
            code="grammar_too_complex",
        )
