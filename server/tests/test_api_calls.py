"""Tool calls and thoughts in text, however it is cut into pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rampway_server.api.answer import AnswerReader, AnswerShape, ThoughtDelta
from rampway_server.api.calls import ArgumentsDelta, CallDelta, TextDelta
from rampway_server.api.reasoning import Reasoning
from rampway_server.api.tools import FORMATS

HERMES, LLAMA = FORMATS["hermes"], FORMATS["llama3_json"]
NAMES = ("weather", "time")
WEATHER = '{"name": "weather", "arguments": {"city": "Ber}\\"lin"}}'
TIME = '{"arguments":{},"name":"time"}'


def read(shape: AnswerShape, *pieces: str) -> dict[str, Any]:
    reader = AnswerReader(shape)
    deltas = [
        delta
        for at, piece in enumerate(pieces)
        for delta in reader.push(piece, last=at == len(pieces) - 1)
    ]
    calls: list[list[str]] = []
    for delta in deltas:
        if isinstance(delta, CallDelta):
            assert delta.index == len(calls)
            assert delta.id.startswith("call_")
            calls.append([delta.name, ""])
        elif isinstance(delta, ArgumentsDelta):
            calls[delta.index][1] += delta.text
    assert reader.called == bool(calls)
    return {
        "text": "".join(d.text for d in deltas if isinstance(d, TextDelta)),
        "thought": "".join(d.text for d in deltas if isinstance(d, ThoughtDelta)),
        "calls": [(name, json.loads(arguments)) for name, arguments in calls],
    }


def hermes(*, parallel: bool = True, reasoning: Reasoning | None = None) -> AnswerShape:
    return AnswerShape(reasoning, HERMES, NAMES, parallel)


def tag(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


CALLED = ("weather", {"city": 'Ber}"lin'})
HERMES_CASES: dict[str, tuple[str, str, list[Any]]] = {
    "text only": ("no calls < here <tool", "no calls < here <tool", []),
    "one call": (tag(WEATHER), "", [CALLED]),
    "text before": ("I look.\n" + tag(WEATHER), "I look.", [CALLED]),
    "two calls": (tag(WEATHER) + "\n" + tag(TIME) + "\n", "", [CALLED, ("time", {})]),
    "no arguments": (tag('{"name": "time"}'), "", [("time", {})]),
    "null arguments": (tag('{"name": "time", "arguments": null}'), "", [("time", {})]),
    "arguments as text": (
        tag('{"name": "time", "arguments": "{\\"a\\": 1}"}'),
        "",
        [("time", {"a": 1})],
    ),
    "no end tag": (f"<tool_call>{WEATHER}", "", [CALLED]),
    "unknown tool": (tag('{"name": "rm", "arguments": {}}'), tag('{"name": "rm", "arguments": {}}'), []),
    "no object": (tag("weather"), tag("weather"), []),
    "cut before the name": ('<tool_call>{"na', '<tool_call>{"na', []),
    "number as arguments": (
        tag('{"name": "time", "arguments": 5}'),
        tag('{"name": "time", "arguments": 5}'),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HERMES_CASES)
def test_given_tagged_text_when_read_whole_or_by_character_then_calls_and_text_are_apart(
    case: str,
) -> None:
    source, text, calls = HERMES_CASES[case]
    expected = {"text": text, "thought": "", "calls": calls}
    assert read(hermes(), source) == expected
    assert read(hermes(), *source, "") == expected


LLAMA_CALL = '{"name": "weather", "parameters": {"city": "Ber}\\"lin"}}'
LLAMA_CASES: dict[str, tuple[str, str, list[Any]]] = {
    "text": ('It is {"name": "weather"}', 'It is {"name": "weather"}', []),
    "call": (LLAMA_CALL, "", [CALLED]),
    "tagged call": ("\n<|python_tag|>" + LLAMA_CALL, "", [CALLED]),
    "two": (LLAMA_CALL + "; " + TIME, "", [CALLED, ("time", {})]),
    "json that is no call": ('{"a": 1}', '{"a": 1}', []),
    "unknown tool": ('{"name": "rm", "parameters": {}}', '{"name": "rm", "parameters": {}}', []),
    "cut": ('{"name": "wea', '{"name": "wea', []),
    "empty": ("", "", []),
}


@pytest.mark.parametrize("case", LLAMA_CASES)
def test_given_bare_json_when_read_whole_or_by_character_then_calls_and_text_are_apart(
    case: str,
) -> None:
    source, text, calls = LLAMA_CASES[case]
    expected = {"text": text, "thought": "", "calls": calls}
    shape = AnswerShape(None, LLAMA, NAMES)
    assert read(shape, source) == expected
    assert read(shape, *source, "") == expected


def test_given_calls_one_at_a_time_when_several_come_then_only_the_first_is_given_out() -> None:
    both = tag(WEATHER) + "\n" + tag(TIME)
    assert read(hermes(parallel=False), *both, "")["calls"] == [CALLED]
    shape = AnswerShape(None, LLAMA, NAMES, parallel=False)
    assert read(shape, *f"{LLAMA_CALL}; {TIME}", "")["calls"] == [CALLED]


THOUGHTS: dict[str, tuple[bool, str, str, str]] = {
    "thought": (False, "\n<think>\nhm </ th\n</think>\n\nYes.", "hm </ th", "Yes."),
    "open from the prompt": (True, "hm\n</think>Yes.", "hm", "Yes."),
    "never ends": (False, "<think>hm", "hm", ""),
    "none": (False, "<thin ice", "", "<thin ice"),
    "none but white space": (False, " yes", "", " yes"),
    "empty": (False, "<think>\n\n</think>\n\nYes", "", "Yes"),
    "only open": (False, "<thi", "", "<thi"),
}


@pytest.mark.parametrize("case", THOUGHTS)
def test_given_a_thought_when_read_then_it_is_apart_and_no_tag_is_seen(case: str) -> None:
    is_open, source, thought, text = THOUGHTS[case]
    shape = AnswerShape(Reasoning(open=is_open), None)
    expected = {"text": text, "thought": thought, "calls": []}
    assert read(shape, source) == expected
    assert read(shape, *source, "") == expected


def test_given_a_thought_that_names_a_call_when_read_then_only_the_answer_calls() -> None:
    source = f"<think>{tag(TIME)}?</think>\n{tag(WEATHER)}"
    found = read(hermes(reasoning=Reasoning(open=False)), *source, "")
    assert found["calls"] == [CALLED]
    assert found["thought"] == tag(TIME) + "?"


PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<tool_call>", "</tool_call>", WEATHER, TIME, "{", '"', "}", " ", "a", "\n", "<", ":", '{"name": "weather"', ', "arguments": ', "\\", "null", "[", ";", "]"]
    ),
    max_size=12,
)  # fmt: skip


@given(pieces=PIECES, style=st.sampled_from([HERMES, LLAMA]), thinks=st.booleans())
def test_any_text_reads_the_same_however_it_is_cut(
    pieces: list[str], style: Any, thinks: bool
) -> None:
    text = "".join(pieces)
    shape = AnswerShape(Reasoning(open=False) if thinks else None, style, NAMES)

    def raw(*parts: str) -> list[Any]:
        reader = AnswerReader(shape)
        found = [d for at, p in enumerate(parts) for d in reader.push(p, last=at == len(parts) - 1)]
        kinds: list[Any] = []
        for delta in found:
            kind = (type(delta), delta.name if isinstance(delta, CallDelta) else delta.text)
            if kinds and kinds[-1][0] is kind[0] and not isinstance(delta, CallDelta):
                kinds[-1] = (kind[0], kinds[-1][1] + kind[1])
            else:
                kinds.append(kind)
        return kinds

    def shown(*parts: str) -> str:
        return "".join("".join(text.split()) for _, text in raw(*parts))

    # White space beside a tag may go either way when the tag turns out to be none.
    assert shown(text) == shown(*text, "")
