"""Builds the tokenizer of a Hugging Face folder from tokenizer.json and its neighbours.

It knows which file holds what; encoding itself is the `tokenizers` library's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from rampway_server.errors import UsageError
from rampway_server.model.chat_template import ChatTemplate
from rampway_server.model.safetensors_file import read_json
from rampway_server.model.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["tokenizer_from_folder"]

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token")


def tokenizer_from_folder(folder: Path) -> HFTokenizer:
    """Return the tokenizer; raises UsageError where tokenizer.json is missing or broken."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise UsageError(f"model folder {str(folder)!r} has no tokenizer.json: need one")
    try:
        core = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise UsageError(f"{path} is no tokenizer: {error}") from None
    # A publisher's padding or truncation would change prompts silently.
    core.no_padding()
    core.no_truncation()
    settings = _optional(folder / "tokenizer_config.json")
    special = {name: text for name in _SPECIAL if (text := _token_text(settings.get(name)))}
    template = _template_source(folder, settings)
    return HFTokenizer(
        core,
        eos_ids=_eos_ids(folder, core, special.get("eos_token")),
        chat_template=ChatTemplate(template, special) if template is not None else None,
    )


def _eos_ids(folder: Path, core: Tokenizer, text: str | None) -> frozenset[int]:
    """Return generation_config's ids, else config's, else the tokenizer's own."""
    for name in ("generation_config.json", "config.json"):
        found = _optional(folder / name).get("eos_token_id")
        ids = found if isinstance(found, list) else [found]
        if ids and all(type(token) is int for token in ids):
            return frozenset(ids)
    token = core.token_to_id(text) if text else None
    return frozenset() if token is None else frozenset([token])


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8", errors="replace")
    found = settings.get("chat_template")
    if isinstance(found, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("default")
    return found if isinstance(found, str) else None


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
