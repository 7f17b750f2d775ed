"""Tokenizers from GGUF keys and from tokenizer.json: round trips, special tokens, what is refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import pytest
from gguf_builders import TOKENS, add_tokenizer, finish
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rampway_server.errors import ChatTemplateError, UsageError
from rampway_server.model.folder_tokenizer import tokenizer_from_folder
from rampway_server.model.gguf_file import GgufFile
from rampway_server.model.gguf_tokenizer import tokenizer_from_gguf
from rampway_server.model.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from pathlib import Path

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def from_gguf(folder: Path, **changes: Any) -> HFTokenizer:
    path = folder / "t.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    add_tokenizer(writer, 60, **changes)
    return tokenizer_from_gguf(GgufFile(finish(writer, path)))


def full_bytes() -> HFTokenizer:
    core = Tokenizer(
        models.BPE(vocab={letter: at for at, letter in enumerate(ALPHABET)}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return HFTokenizer(core, eos_ids=frozenset(), chat_template=None)


BYTES = full_bytes()


def test_given_gguf_keys_when_text_is_encoded_then_merges_and_digits_are_respected(
    tmp_path: Path,
) -> None:
    tokenizer = from_gguf(tmp_path)
    at = {token: index for index, token in enumerate(TOKENS)}
    assert tokenizer.encode("ab ab12") == [at["ab"], at["Ġab"], at["1"], at["2"]]
    assert tokenizer.eos_ids == {0}
    assert tokenizer.vocab_size == 60


def test_given_special_tokens_when_decoded_then_they_are_skipped_or_shown(tmp_path: Path) -> None:
    tokenizer = from_gguf(tmp_path)
    ids = tokenizer.encode("<|user|>ab<|end|>")
    assert [ids[0], ids[-1]] == [2, 0]
    assert tokenizer.decode(ids) == "ab"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|user|>ab<|end|>"


def test_given_a_model_that_wants_bos_when_encoded_then_it_is_added_once(tmp_path: Path) -> None:
    tokenizer = from_gguf(tmp_path, add_bos=True)
    assert tokenizer.encode("ab")[0] == 1
    assert tokenizer.encode("ab", add_special_tokens=False)[0] != 1
    assert 1 not in from_gguf(tmp_path).encode("ab")
    assert from_gguf(tmp_path, pre="llama-bpe").encode("ab")[0] == 1
    assert from_gguf(tmp_path, pre="llama-bpe", add_bos=False).encode("ab")[0] != 1


def test_given_the_files_template_when_a_chat_is_rendered_then_its_tokens_are_known(
    tmp_path: Path,
) -> None:
    text = from_gguf(tmp_path).render_chat([{"role": "user", "content": "ab"}])
    assert text == "ab<|end|>"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model": "llama"}, "got 'llama', need 'gpt2'"),
        ({"pre": "unheard-of"}, "got 'unheard-of', need one of smollm"),
        ({"eos": 60}, "eos_token_id 60"),
        ({"kinds": [1, 1]}, "2 token types: need 60"),
        ({"merges": ["q zz"]}, "merges"),
        ({"merges": ["ab"]}, "merges"),
    ],
)
def test_given_a_tokenizer_that_cannot_be_used_when_built_then_it_is_one_line(
    changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        from_gguf(tmp_path, **changes)
    assert "\n" not in str(caught.value)


@given(text=st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_from_byte_level_ids(text: str) -> None:
    assert BYTES.decode(BYTES.encode(text)) == text


def test_given_half_a_character_when_decoded_then_it_is_the_replacement_character() -> None:
    ids = BYTES.encode("é")
    assert len(ids) == 2
    assert BYTES.decode(ids[:1]) == "\ufffd"


def test_given_ids_outside_the_vocabulary_when_decoded_then_they_have_no_text() -> None:
    assert BYTES.decode([-1, *BYTES.encode("a"), 10**6]) == "a"
    assert BYTES.decode([]) == ""


def test_given_no_template_when_a_chat_is_rendered_then_the_client_is_told() -> None:
    with pytest.raises(ChatTemplateError, match="no chat template"):
        BYTES.render_chat([{"role": "user", "content": "a"}])


def folder_with(folder: Path, **files: object) -> Path:
    core = Tokenizer(
        models.BPE(vocab={letter: at for at, letter in enumerate(ALPHABET)}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.enable_truncation(2)
    core.save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_given_a_folder_when_its_tokenizer_is_built_then_neighbours_say_eos_and_template(
    tmp_path: Path,
) -> None:
    settings_ = {"eos_token": {"content": "a"}, "chat_template": "{{ eos_token }}!"}
    folder = folder_with(tmp_path, config={"eos_token_id": 7}, tokenizer_config=settings_)
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.eos_ids == {7}
    assert tokenizer.render_chat([]) == "a!"
    assert len(tokenizer.encode("abcdef")) == 6  # the file's truncation is not ours
    folder_with(tmp_path, generation_config={"eos_token_id": [3, 4]})
    assert tokenizer_from_folder(folder).eos_ids == {3, 4}
    (folder / "chat_template.jinja").write_text("jinja")
    assert tokenizer_from_folder(folder).render_chat([]) == "jinja"


def test_given_several_templates_when_the_tokenizer_is_built_then_the_default_is_taken(
    tmp_path: Path,
) -> None:
    several = [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]
    folder = folder_with(tmp_path, tokenizer_config={"chat_template": several, "eos_token": "b"})
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.render_chat([]) == "d"
    assert tokenizer.eos_ids == set(tokenizer.encode("b"))


def test_given_no_tokenizer_or_a_broken_one_when_built_then_it_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no tokenizer\.json"):
        tokenizer_from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer"):
        tokenizer_from_folder(tmp_path)
