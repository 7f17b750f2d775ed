"""The bodies clients send: OpenAI's, vLLM's and SGLang's fields that this server honours.

It knows no tokenizer and no limit of the model; a field that would change the output and is not
honoured is refused, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from rampway_server.api.faults import from_validation
from rampway_server.errors import RequestError

__all__ = [
    "ChatBody",
    "CompletionBody",
    "DetokenizeBody",
    "FunctionSpec",
    "GenerateBody",
    "Message",
    "ResponseFormat",
    "SamplingBody",
    "StreamOptions",
    "TextPart",
    "TokenizeBody",
    "parse_body",
]

MAX_CHOICES = 4
MAX_PROMPTS = 64
MAX_LOGPROBS = 20
MAX_BIASES = 300
MAX_TOOLS = 128
MAX_DEPTH = 32
"""Levels of lists and objects in a body."""

IGNORED = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "request_id",
        "rid",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
"""Accepted whatever they hold: they cannot change the text."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "documents": ([],),
    "functions": ([],),
    "include_reasoning": (True,),
    "length_penalty": (1, 1.0),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "prompt_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "return_token_ids": (False,),
    "separate_reasoning": (True,),
    "spaces_between_special_tokens": (True,),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "use_beam_search": (False,),
}
"""Values of unsupported fields that ask for nothing; any other value is refused."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, value: Any) -> Any:
        """Clients send null for what they leave at its default."""
        if not isinstance(value, dict):
            return value
        return {name: part for name, part in value.items() if part is not None}


class StreamOptions(_Body):
    """What a stream carries beside text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


StopString = Annotated[str, StringConstraints(min_length=1, max_length=64)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class SamplingBody(_Body):
    """How tokens are drawn and when to stop; shared by all generation routes."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] = 1.0
    logit_bias: Annotated[
        dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=MAX_BIASES)
    ] = {}
    stop: StopString | Annotated[list[StopString], Field(max_length=4)] = []
    stop_token_ids: Annotated[list[TokenId], Field(max_length=64)] = []
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    ignore_eos: bool = False
    min_tokens: Annotated[int, Field(ge=0)] = 0
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] = 1


class JsonSchema(_Body):
    """The schema of `response_format: json_schema`; it holds whether or not it is `strict`."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool = False


class ResponseFormat(_Body):
    """What the whole answer must be."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class _OpenAIBody(SamplingBody):
    model: str | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    response_format: ResponseFormat = ResponseFormat(type="text")


TokenIds = Annotated[list[TokenId], Field(min_length=1)]
Text = Annotated[str, StringConstraints(min_length=1)]


class CompletionBody(_OpenAIBody):
    """POST /v1/completions."""

    prompt: (
        Text
        | TokenIds
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS)]
    )
    echo: bool = False
    logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None


ToolName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class TextPart(_Body):
    """One part of a message; only text is served."""

    type: Literal["text"]
    text: str


class CalledFunction(_Body):
    """What a call asks for; the arguments are JSON text."""

    name: ToolName
    arguments: str


class ToolCall(_Body):
    """A call that the model made in an earlier turn."""

    id: Annotated[str, StringConstraints(max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(_Body):
    """One chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: Annotated[str, StringConstraints(max_length=64)] | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=MAX_TOOLS)] = []
    tool_call_id: Annotated[str, StringConstraints(max_length=128)] | None = None
    reasoning_content: str | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] = []
    """The client library sends an answer's empty list back."""


class FunctionSpec(_Body):
    """A tool the model may call."""

    name: ToolName
    description: str | None = None
    parameters: dict[str, Any] = {}
    strict: bool = False
    """Arguments follow the schema; without it they do so only where a call is forced."""

    def schema_of_arguments(self, *, strict: bool) -> dict[str, Any]:
        """Return the schema, or that of any object; a tool without a schema takes nothing."""
        if not strict:
            return {"type": "object"}
        return self.parameters or {"type": "object", "additionalProperties": False}


class Tool(_Body):
    """OpenAI's wrapper of a tool; functions are the only kind."""

    type: Literal["function"]
    function: FunctionSpec


class NamedFunction(_Body):
    """The function a choice names."""

    name: ToolName


class NamedTool(_Body):
    """`tool_choice` for exactly this tool."""

    type: Literal["function"]
    function: NamedFunction


class TemplateOptions(_Body):
    """What a client may tell the chat template: one switch, no free values (CVE-2025-62426)."""

    enable_thinking: bool | None = None


class ChatBody(_OpenAIBody):
    """POST /v1/chat/completions."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=4096)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_LOGPROBS)] = 0
    add_generation_prompt: bool = True
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = []
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    chat_template_kwargs: TemplateOptions = TemplateOptions()


class NativeSampling(SamplingBody):
    """SGLang's `sampling_params`."""

    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    min_new_tokens: Annotated[int, Field(ge=0)] = 0
    json_schema: Annotated[str, StringConstraints(min_length=1)] | None = None
    """A JSON schema as JSON text."""


class GenerateBody(_Body):
    """POST /generate, SGLang's own route."""

    text: Text | None = None
    input_ids: TokenIds | None = None
    sampling_params: NativeSampling = NativeSampling()
    stream: bool = False


class TokenizeBody(_Body):
    """POST /tokenize: a prompt, or a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] = []


class DetokenizeBody(_Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[TokenId]


B = TypeVar("B", bound=BaseModel)


def parse_body(model: type[B], raw: bytes) -> B:
    """Return the body, or raise a 400 that names every wrong, unknown or unsupported field."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError(
            f"body is not an object: got {type(value).__name__}, need a JSON object",
            code="invalid_json",
        )
    # No more brackets than levels: nothing to look for in most bodies.
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise RequestError(
            f"body is nested too deeply: got more than {MAX_DEPTH} levels of lists and objects",
            code="invalid_json",
        )
    try:
        return model.model_validate(_without_neutral(model, value))
    except ValidationError as error:
        raise from_validation(error) from None


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(part, levels - 1) for part in parts)


def _without_neutral(model: type[BaseModel], body: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name, value in body.items():
        if value is None or name in IGNORED:
            continue
        if name in NEUTRAL and name not in model.model_fields:
            if value in NEUTRAL[name]:
                continue
            raise RequestError(
                f"{name} is not supported by this server: leave it out",
                param=name,
                code="unsupported_parameter",
            )
        kept[name] = value
    return kept
