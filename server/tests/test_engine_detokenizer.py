"""Text pieces: whole characters only, nothing of a stop string, and joined they are the text."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from rampway_server.engine.byte_tokenizer import ByteTokenizer
from rampway_server.engine.detokenizer import Detokenizer

TOKENIZER = ByteTokenizer(512)


class SpacedTokenizer:
    """Like SentencePiece: every token begins with a space, and the text's first one is dropped."""

    vocab_size = 512
    eos_ids = frozenset({256})

    def decode(self, ids, *, skip_special_tokens: bool = True) -> str:
        words = [f" w{i}" for i in ids if not (skip_special_tokens and i == 256)]
        return "".join(words).removeprefix(" ")


def pieces_of(tokens: list[int], tokenizer=TOKENIZER, **options) -> tuple[list[str], bool]:
    detokenizer = Detokenizer(tokenizer, **options)
    texts = []
    for at, token in enumerate(tokens):
        piece = detokenizer.push(token, last=at == len(tokens) - 1)
        texts.append(piece.text)
        if piece.stopped:
            return texts, True
    return texts, False


@given(st.text(min_size=1, max_size=40))
@example("🏳️‍🌈 é ü 漢字")
def test_any_text_comes_in_whole_characters_and_joined_it_is_the_text(text: str) -> None:
    texts, _ = pieces_of(list(text.encode(errors="replace")))
    assert "".join(texts) == text.encode(errors="replace").decode()
    if "�" not in text:
        assert not any("�" in piece for piece in texts)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=200))
@example([0xF0, 0x9F, 0x98] * 40)
@example([0x80] * 100)
def test_any_bytes_joined_are_what_decoding_all_of_them_gives(tokens: list[int]) -> None:
    texts, _ = pieces_of(tokens)
    assert "".join(texts) == TOKENIZER.decode(tokens)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50))
@example([256, 1, 2])
def test_a_tokenizer_that_drops_the_first_space_loses_no_other(tokens: list[int]) -> None:
    texts, _ = pieces_of(tokens, SpacedTokenizer())
    assert "".join(texts) == SpacedTokenizer().decode(tokens)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
@example("aab", ["ab"])
@example("abab", ["bab", "aba"])
def test_the_text_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    tokens = list(text.encode())
    texts, stopped = pieces_of(tokens, stop=stop)
    # A stop string counts when its last character comes; of those that end there, the longest.
    ends = [
        (end, text[: end - len(s)])
        for end in range(1, len(text) + 1)
        for s in sorted(stop, key=len, reverse=True)
        if text[:end].endswith(s)
    ]
    assert stopped == bool(ends)
    assert "".join(texts) == (ends[0][1] if ends else text)


def test_given_include_stop_when_it_comes_then_it_is_shown() -> None:
    texts, stopped = pieces_of(list(b"one END two"), stop=["END"], include_stop=True)
    assert ("".join(texts), stopped) == ("one END", True)


def test_given_a_possible_stop_prefix_when_it_turns_out_otherwise_then_it_is_shown() -> None:
    detokenizer = Detokenizer(TOKENIZER, stop=["END"])
    assert [detokenizer.push(token).text for token in b"ENE"] == ["", "", "EN"]
    assert detokenizer.flush().text == "E"


def test_given_min_tokens_when_the_stop_string_comes_before_then_it_does_not_stop() -> None:
    texts, stopped = pieces_of(list(b"ab ab"), stop=["ab"], min_tokens=3)
    assert ("".join(texts), stopped) == ("ab ", True)
