"""Builds the tokenizer that a GGUF file describes in its `tokenizer.*` keys.

It knows llama.cpp's names of byte-level BPE pre-tokenizers; other tokenizer kinds are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from rampway_server.errors import UsageError
from rampway_server.model.chat_template import ChatTemplate
from rampway_server.model.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from rampway_server.model.gguf_file import GgufFile

__all__ = ["tokenizer_from_gguf"]

_CONTROL, _USER_DEFINED = 3, 4  # tokenizer.ggml.token_type
# The publishers' own patterns (tokenizer.json of Llama 3 and Qwen 2).
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_PATTERNS = {"llama-bpe": _LLAMA3, "llama3": _LLAMA3, "qwen2": _QWEN2}
_BYTE_LEVEL = ("default", "gpt-2", "gpt2")
_SUPPORTED = ("smollm", *_BYTE_LEVEL, *_PATTERNS)
_ADDS_BOS = ("llama-bpe", "llama3")  # where the key is missing


def tokenizer_from_gguf(file: GgufFile) -> HFTokenizer:
    """Return the tokenizer; raises UsageError where the file's kind of it is not supported."""
    kind = file.values.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UsageError(
            f"{file.path} has a tokenizer that cannot be used: got {kind!r}, need 'gpt2' (byte-level "
            "BPE); serve the model's safetensors folder instead"
        )
    tokens = file.strings("tokenizer.ggml.tokens")
    pre = file.values.get("tokenizer.ggml.pre", "default")
    core = Tokenizer(_bpe(file, tokens, str(pre)))
    core.pre_tokenizer = _pre_tokenizer(file, str(pre))
    core.decoder = decoders.ByteLevel()
    _add_special(core, file, tokens)
    _add_bos(core, file, tokens, str(pre))
    template = file.values.get("tokenizer.chat_template")
    return HFTokenizer(
        core,
        eos_ids=_eos_ids(file, len(tokens)),
        chat_template=_template(file, tokens, template) if isinstance(template, str) else None,
    )


def _bpe(file: GgufFile, tokens: list[str], pre: str) -> models.BPE:
    vocab = {token: index for index, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        doubled = len(tokens) - len(vocab)
        raise UsageError(f"{file.path} has {doubled} tokens twice: need each token once")
    # A token never contains a space (byte-level BPE writes it as Ġ), so one split is exact.
    pairs = [merge.partition(" ") for merge in file.strings("tokenizer.ggml.merges")]
    merges = [(left, right) for left, _, right in pairs]
    try:
        return models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in ("llama-bpe", "llama3"))
    except Exception as error:  # the library raises a bare Exception
        raise UsageError(f"{file.path} has merges that do not fit its tokens: {error}") from None


def _pre_tokenizer(file: GgufFile, pre: str) -> pre_tokenizers.PreTokenizer:
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre in _BYTE_LEVEL:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _PATTERNS:
        split = pre_tokenizers.Split(Regex(_PATTERNS[pre]), behavior="isolated")
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([split, plain])
    raise UsageError(
        f"{file.path} has a pre-tokenizer that cannot be used: got {pre!r}, need one of "
        f"{', '.join(_SUPPORTED)}; serve the model's safetensors folder instead"
    )


def _add_special(core: Tokenizer, file: GgufFile, tokens: list[str]) -> None:
    kinds = file.numbers("tokenizer.ggml.token_type")
    if len(kinds) != len(tokens):
        raise UsageError(f"{file.path} has {len(kinds)} token types: need {len(tokens)}")
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    core.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    user = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED]
    core.add_tokens([AddedToken(t, normalized=False) for t in user])


def _add_bos(core: Tokenizer, file: GgufFile, tokens: list[str], pre: str) -> None:
    bos = _token_id(file, "bos_token_id", len(tokens))
    wanted = file.values.get("tokenizer.ggml.add_bos_token", pre in _ADDS_BOS)
    if bos is not None and wanted:
        core.post_processor = processors.TemplateProcessing(
            single="$bos $A".replace("$bos", tokens[bos]), special_tokens=[(tokens[bos], bos)]
        )


def _eos_ids(file: GgufFile, vocab: int) -> frozenset[int]:
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    return frozenset(t for key in keys if (t := _token_id(file, key, vocab)) is not None)


def _template(file: GgufFile, tokens: list[str], source: str) -> ChatTemplate:
    special = {}
    for name in ("bos", "eos", "unknown", "padding"):
        token = _token_id(file, f"{name}_token_id", len(tokens))
        short = {"unknown": "unk", "padding": "pad"}.get(name, name)
        if token is not None:
            special[f"{short}_token"] = tokens[token]
    return ChatTemplate(source, special)


def _token_id(file: GgufFile, key: str, vocab: int) -> int | None:
    value = file.values.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < vocab:
        raise UsageError(f"{file.path} has {key} {value!r}: need a token id below {vocab}")
    return value
