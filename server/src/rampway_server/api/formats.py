"""How answers look on the wire: OpenAI's completions, SGLang's generate, and what chat shares.

It knows no engine: events and counts in, bytes or JSON values out.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import orjson

if TYPE_CHECKING:
    from rampway_server.api.generation import Event, Usage
    from rampway_server.engine.batch import Sample
    from rampway_server.engine.tokenizer import Tokenizer

__all__ = ["CompletionFormat", "Format", "NativeFormat", "OpenAIFormat", "Whole"]

DONE = b"data: [DONE]\n\n"


class Format(Protocol):
    """One call's answer, streamed or whole."""

    def head(self, choices: int) -> bytes:
        """Return what a stream begins with."""

    def event(self, event: Event, usage: Usage | None) -> bytes:
        """Return the stream's bytes for one event."""

    def tail(self, usage: Usage) -> bytes:
        """Return what a complete stream ends with."""

    def whole(self, texts: list[Whole], usage: Usage) -> Any:
        """Return the JSON value of an answer that is not streamed."""


@dataclass(slots=True)
class Whole:
    """A finished choice."""

    text: str = ""
    samples: list[Sample] = field(default_factory=list)
    finish: str | None = None


def usage_dict(usage: Usage) -> dict[str, Any]:
    """Return OpenAI's usage object, cached tokens always in it."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class OpenAIFormat:
    """What both OpenAI routes share; a chunk is a prefix, the text, and a suffix."""

    chunk_kind: str
    whole_kind: str

    def __init__(
        self,
        answer_id: str,
        model: str,
        tokenizer: Tokenizer,
        *,
        logprobs: int | None,
        include_usage: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._logprobs = logprobs
        self._include_usage = include_usage
        self._identity = {"id": answer_id, "created": int(time.time()), "model": model}
        head = orjson.dumps({"object": self.chunk_kind, **self._identity})
        self._prefix = b"data: " + head[:-1] + b',"choices":'
        # OpenAI sends `usage: null` on every chunk before the one that holds it.
        self._suffix = b',"usage":null}\n\n' if include_usage else b"}\n\n"

    def tail(self, usage: Usage) -> bytes:
        """Return the usage chunk, if asked for, and the end mark."""
        if not self._include_usage:
            return DONE
        return self._prefix + b'[],"usage":' + orjson.dumps(usage_dict(usage)) + b"}\n\n" + DONE

    def _chunk(self, choices: bytes, usage: Usage | None) -> bytes:
        if usage is None:
            return self._prefix + choices + self._suffix
        return self._prefix + choices + b',"usage":' + orjson.dumps(usage_dict(usage)) + b"}\n\n"

    def _answer(self, choices: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        return {
            "object": self.whole_kind,
            **self._identity,
            "choices": choices,
            "usage": usage_dict(usage),
        }

    def _token_text(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special_tokens=False)


class CompletionFormat(OpenAIFormat):
    """POST /v1/completions; with `echo` every choice begins with its prompt."""

    chunk_kind = whole_kind = "text_completion"

    def __init__(
        self,
        answer_id: str,
        model: str,
        tokenizer: Tokenizer,
        *,
        logprobs: int | None,
        include_usage: bool = False,
        echo: list[str] | None = None,
    ) -> None:
        super().__init__(
            answer_id, model, tokenizer, logprobs=logprobs, include_usage=include_usage
        )
        self._echo = echo or []
        self._offsets: dict[int, int] = {}

    def head(self, choices: int) -> bytes:
        """Return the echoed prompts; without `echo` a stream begins with its first token."""
        del choices
        return b"".join(
            self._chunk(_completion_choice(index, orjson.dumps(text), b"null", b"null"), None)
            for index, text in enumerate(self._echo)
        )

    def event(self, event: Event, usage: Usage | None) -> bytes:
        """Return the text chunk; the last one carries the finish reason."""
        finish = b"null" if event.finish is None else b'"%b"' % event.finish.value.encode()
        logprobs = b"null"
        if self._logprobs is not None:
            logprobs = orjson.dumps(self._logprob_dict(event.index, event.samples))
        text = orjson.dumps(event.text)
        return self._chunk(_completion_choice(event.index, text, logprobs, finish), usage)

    def whole(self, texts: list[Whole], usage: Usage) -> dict[str, Any]:
        """Return the answer object."""
        choices = [
            {
                "index": index,
                "text": (self._echo[index] if self._echo else "") + text.text,
                "logprobs": self._logprob_dict(index, text.samples),
                "finish_reason": text.finish,
            }
            for index, text in enumerate(texts)
        ]
        return self._answer(choices, usage)

    def _logprob_dict(self, index: int, samples: list[Sample]) -> dict[str, Any] | None:
        if self._logprobs is None:
            return None
        texts = [self._token_text(sample.token) for sample in samples]
        offset = self._offsets.get(index, 0)
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        self._offsets[index] = offset
        return {
            "tokens": texts,
            "token_logprobs": [sample.logprob for sample in samples],
            "top_logprobs": [
                {self._token_text(token): logprob for token, logprob in s.top[: self._logprobs]}
                for s in samples
            ],
            "text_offset": offsets,
        }


def _completion_choice(index: int, text: bytes, logprobs: bytes, finish: bytes) -> bytes:
    return b'[{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}]' % (
        index,
        text,
        logprobs,
        finish,
    )


class NativeFormat:
    """POST /generate: the whole text so far in every event, as SGLang's clients expect."""

    def __init__(self, answer_id: str, choices: int) -> None:
        self._id = answer_id
        self._texts = [Whole() for _ in range(choices)]

    def head(self, choices: int) -> bytes:
        """Nothing comes before the first token."""
        del choices
        return b""

    def event(self, event: Event, usage: Usage | None) -> bytes:
        """Return the choice as it stands now."""
        assert usage is not None
        text = self._texts[event.index]
        text.text += event.text
        text.samples += event.samples
        text.finish = None if event.finish is None else event.finish.value
        return b"data: " + orjson.dumps(self._entry(event.index, text, usage)) + b"\n\n"

    def tail(self, usage: Usage) -> bytes:
        """Return the end mark."""
        del usage
        return DONE

    def whole(self, texts: list[Whole], usage: Usage) -> Any:
        """Return one object, or a list of them for n > 1."""
        entries = [self._entry(index, text, usage) for index, text in enumerate(texts)]
        return entries[0] if len(entries) == 1 else entries

    def _entry(self, index: int, text: Whole, usage: Usage) -> dict[str, Any]:
        finish = None if text.finish is None else {"type": text.finish}
        return {
            "text": text.text,
            "index": index,
            "output_ids": [sample.token for sample in text.samples],
            "meta_info": {
                "id": self._id,
                "finish_reason": finish,
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": len(text.samples),
                "cached_tokens": usage.cached_tokens,
            },
        }
