"""Chat templates: what a model's own template gets, and what neither it nor a client may do."""

from __future__ import annotations

from typing import Any

import pytest

from rampway_server.errors import ChatTemplateError, UsageError
from rampway_server.model.chat_template import ChatTemplate

USER = [{"role": "user", "content": "hi"}]


def render(source: str, messages: Any = USER, **kwargs: Any) -> str:
    options = {"add_generation_prompt": True, "tools": None} | kwargs
    return ChatTemplate(source, {"eos_token": "</s>"}).render(messages, **options)


def test_given_text_parts_when_rendered_then_content_is_one_string() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, "c"]
    source = "{% for m in messages %}{{ m['role'] + ':' + m['content'] + eos_token }}{% endfor %}"
    assert render(source, [{"role": "user", "content": parts}]) == "user:abc</s>"
    assert render(source, [{"role": "assistant", "content": None}]) == "assistant:</s>"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([{"type": "image_url", "image_url": {}}], r"messages\[0\].content\[0\].*'image_url'"),
        ([{"type": "text"}], r"content\[0\]"),
        ([5], r"got part type 'int'"),
        (5, r"messages\[0\].content has the wrong type: got int"),
        ({"a": 1}, "got dict"),
    ],
)
def test_given_content_that_is_no_text_when_rendered_then_the_place_is_named(
    content: object, complaint: str
) -> None:
    with pytest.raises(ChatTemplateError, match=complaint) as caught:
        render("{{ messages[0]['content'] }}", [{"role": "user", "content": content}])
    assert caught.value.status == 400
    assert caught.value.param is not None


def test_given_a_template_that_refuses_when_rendered_then_its_words_reach_the_client() -> None:
    with pytest.raises(ChatTemplateError, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")


def test_given_a_missing_role_when_rendered_then_it_is_the_clients_fault() -> None:
    with pytest.raises(ChatTemplateError, match="no attribute 'role'"):
        render("{{ 'x' + messages[0]['role'] }}", [{"content": "hi"}])


def test_given_transformers_helpers_when_rendered_then_they_exist() -> None:
    assert render("{{ tools | tojson }}", tools=[{"a": "<é>"}]) == '[{"a": "<é>"}]'
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10
    assert (
        render("{% for i in [1,2,3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "1"
    )
    assert render("{% if x %}\n{% endif %}\n  {% set a = 1 %}\nb") == "b"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ self.__init__.__globals__ }}",
        "{{ 'x' * 100000000 }}",
        "{{ [0] * 100000000 }}",
        "{{ 100000000 * 'x' }}",
        "{{ 10 ** 10000000 }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{% for i in range(90000) %}" + "x" * 200 + "{% endfor %}",
        "{{ ['a'] | map(attribute='__class__') | list | first | attr('mro') }}{{ ().__class__ .mro() }}",
        "{% include 'x' %}",
        "{% import 'os' as os %}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_given_a_hostile_template_when_rendered_then_it_is_refused(source: str) -> None:
    with pytest.raises((ChatTemplateError, UsageError)) as caught:
        render(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_given_a_broken_template_when_compiled_then_it_is_one_line_at_start() -> None:
    with pytest.raises(UsageError, match="does not compile"):
        ChatTemplate("{% for %}", {})
    with pytest.raises(UsageError, match="too long"):
        ChatTemplate("x" * 300_000, {})


def test_given_messages_when_rendered_then_the_callers_own_are_unchanged() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    render("{{ messages[0]['content'] }}", messages)
    assert messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
