"""How chat answers look on the wire: OpenAI's deltas for text, thought and tool calls.

It knows no engine: events and counts in, bytes or JSON values out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rampway_server.api.answer import ThoughtDelta
from rampway_server.api.calls import ArgumentsDelta, CallDelta, TextDelta
from rampway_server.api.formats import OpenAIFormat
from rampway_server.engine.request import FinishReason

if TYPE_CHECKING:
    from rampway_server.api.answer import AnswerDelta, AnswerReader, AnswerShape
    from rampway_server.api.formats import Whole
    from rampway_server.api.generation import Event, Usage
    from rampway_server.engine.batch import Sample
    from rampway_server.engine.tokenizer import Tokenizer

__all__ = ["ChatFormat"]

TOOL_CALLS = "tool_calls"


class ChatFormat(OpenAIFormat):
    """POST /v1/chat/completions."""

    chunk_kind = "chat.completion.chunk"
    whole_kind = "chat.completion"

    def __init__(
        self,
        answer_id: str,
        model: str,
        tokenizer: Tokenizer,
        *,
        logprobs: int | None,
        shape: AnswerShape,
        include_usage: bool = False,
    ) -> None:
        super().__init__(
            answer_id, model, tokenizer, logprobs=logprobs, include_usage=include_usage
        )
        self._shape = shape
        self._readers: dict[int, AnswerReader] = {}
        self._unshown: dict[int, list[Sample]] = {}
        """By choice, the tokens whose text a reader still holds back."""

    def head(self, choices: int) -> bytes:
        """Return the chunk that names the role, one a choice."""
        for index in range(choices):
            if (reader := self._shape.reader()) is not None:
                self._readers[index] = reader
        return b"".join(
            self._chunk(
                b'[{"index":%d,"delta":{"role":"assistant","content":""},'
                b'"logprobs":null,"finish_reason":null}]' % index,
                None,
            )
            for index in range(choices)
        )

    def event(self, event: Event, usage: Usage | None) -> bytes:
        """Return delta chunks, and the finish chunk behind the last one."""
        reader = self._readers.get(event.index)
        deltas, samples, finish = [], event.samples, event.finish
        if reader is None:
            if event.text:
                deltas.append(b'{"content":%b}' % orjson.dumps(event.text))
        else:
            found = reader.push(event.text, last=finish is not None)
            deltas = [orjson.dumps(_delta(delta)) for delta in found]
            samples = [*self._unshown.pop(event.index, ()), *samples]
            if not deltas and finish is None:
                self._unshown[event.index] = samples
                return b""
        logprobs = b"null"
        if self._logprobs is not None:
            logprobs = orjson.dumps(self._logprob_dict(samples))
        chunk = b""
        for delta in deltas:
            chunk += self._chunk(
                b'[{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":null}]'
                % (event.index, delta, logprobs),
                usage,
            )
            logprobs = b"null"
        if finish is not None:
            chunk += self._chunk(
                b'[{"index":%d,"delta":{},"logprobs":%b,"finish_reason":"%b"}]'
                % (event.index, logprobs, _finish(finish.value, reader).encode()),
                usage,
            )
        return chunk

    def whole(self, texts: list[Whole], usage: Usage) -> dict[str, Any]:
        """Return the answer object."""
        choices = []
        for index, text in enumerate(texts):
            reader = self._shape.reader()
            message = (
                {"role": "assistant", "content": text.text, "refusal": None}
                if reader is None
                else _message(reader.push(text.text, last=True))
            )
            choices.append(
                {
                    "index": index,
                    "message": message,
                    "logprobs": self._logprob_dict(text.samples),
                    "finish_reason": text.finish and _finish(text.finish, reader),
                }
            )
        return self._answer(choices, usage)

    def _logprob_dict(self, samples: list[Sample]) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        return {"content": [self._logprob_entry(sample) for sample in samples], "refusal": None}

    def _logprob_entry(self, sample: Sample) -> dict[str, Any]:
        def entry(token: int, logprob: float | None) -> dict[str, Any]:
            text = self._token_text(token)
            return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

        top = [entry(token, logprob) for token, logprob in sample.top[: self._logprobs]]
        return {**entry(sample.token, sample.logprob), "top_logprobs": top}


def _finish(finish: str, reader: AnswerReader | None) -> str:
    """Return the reason; an answer that was cut in a call was still cut."""
    called = reader is not None and reader.called
    return TOOL_CALLS if called and finish == FinishReason.STOP.value else finish


def _delta(delta: AnswerDelta) -> dict[str, Any]:
    """Return one delta of a stream."""
    if isinstance(delta, TextDelta):
        return {"content": delta.text}
    if isinstance(delta, ThoughtDelta):
        return {"reasoning_content": delta.text}
    if isinstance(delta, CallDelta):
        function = {"name": delta.name, "arguments": ""}
        call: dict[str, Any] = {"id": delta.id, "type": "function", "function": function}
    else:
        call = {"function": {"arguments": delta.text}}
    return {"tool_calls": [{"index": delta.index, **call}]}


def _message(deltas: list[AnswerDelta]) -> dict[str, Any]:
    """Return a whole message; its content is null where there are only calls."""
    text, thought = "", ""
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        if isinstance(delta, TextDelta):
            text += delta.text
        elif isinstance(delta, ThoughtDelta):
            thought += delta.text
        elif isinstance(delta, CallDelta):
            function = {"name": delta.name, "arguments": ""}
            calls.append({"id": delta.id, "type": "function", "function": function})
        else:
            assert isinstance(delta, ArgumentsDelta)
            calls[delta.index]["function"]["arguments"] += delta.text
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message |= {"content": text or None, "tool_calls": calls}
    return message
