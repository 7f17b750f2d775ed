"""Keys and tenants: who may ask, who may flush, and whose cached pages are whose."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from api_builders import front

from rampway_server.api.keys import Keys, namespace
from rampway_server.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PROMPT = {"prompt": "the same long prompt for everybody " * 3, "max_tokens": 1}
ALICE = {"Authorization": "Bearer alice-key-1"}
ALICE_TOO = {"Authorization": "Bearer alice-key-2"}
BOB = {"Authorization": "Bearer bob-key-12"}
ADMIN = {"Authorization": "Bearer admin-key-1"}


@pytest.fixture
def key_flags(tmp_path: Path) -> list[str]:
    keys, admin = tmp_path / "keys", tmp_path / "admin"
    keys.write_text("# ours\nalice:alice-key-1\nalice: alice-key-2\n\nbob-key-12\n")
    admin.write_text("root:admin-key-1\n")
    return ["--api-key-file", str(keys), "--admin-key-file", str(admin)]


async def test_given_keys_when_a_call_has_none_or_a_wrong_one_then_401_but_probes_are_open(
    key_flags: list[str],
) -> None:
    async with front(*key_flags) as server:
        for path in ("/v1/completions", "/v1/models", "/server_info", "/flush_cache", "/nope"):
            for headers in (
                {},
                {"Authorization": "Bearer x"},
                {"Authorization": "Basic alice-key-1"},
            ):
                response = await server.client.get(path, headers=headers)
                assert response.status_code == 401, path
                assert response.json()["error"]["code"] == "invalid_api_key"
        for path in ("/livez", "/readyz", "/health", "/ping", "/version"):
            assert (await server.client.get(path)).status_code == 200
        assert (await server.post("/v1/completions", PROMPT, headers=ALICE)).status_code == 200


async def test_ktransformers_2184_given_tenants_when_they_send_one_prompt_then_only_one_s_keys_share(
    key_flags: list[str],
) -> None:
    async with front(*key_flags) as server:

        async def cached(headers: dict[str, str], **extra: str) -> int:
            answer = await server.post("/v1/completions", {**PROMPT, **extra}, headers=headers)
            return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert await cached(ALICE) == 0
        assert await cached(BOB) == 0
        assert await cached(ALICE_TOO) > 0
        assert await cached(ALICE, cache_salt="s") == 0
        assert await cached(ALICE_TOO, cache_salt="s") > 0


async def test_given_an_admin_key_when_flushing_then_it_alone_may(key_flags: list[str]) -> None:
    async with front(*key_flags) as server:
        await server.post("/v1/completions", PROMPT, headers=ALICE)
        assert (await server.client.post("/flush_cache", headers=ALICE)).status_code == 401
        flushed = await server.client.post("/reset_prefix_cache", headers=ADMIN)
        assert flushed.json()["success"] is True
        assert flushed.json()["freed_pages"] > 0


def test_vllm_56655_given_parts_that_join_to_the_same_text_when_named_then_the_namespaces_differ() -> (
    None
):
    parts = ["", "a", "b", "ab", "aa"]
    combinations = list(itertools.product(parts, parts, parts))
    assert len({namespace(*combination) for combination in combinations}) == len(combinations)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "holds no key"), ("# only\n", "holds no key"), ("a:short\n", "line 1")],
)
def test_given_a_bad_key_file_when_read_then_one_line_says_where(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        Keys.read([path], None)


def test_given_keys_when_held_then_their_text_is_not() -> None:
    keys = Keys(((b"d" * 32, "alice"),))
    assert "alice-key" not in repr(keys)
