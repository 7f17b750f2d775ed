"""HTTP that is broken, slow or too large: refused, bounded, and the next client is served."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest
from server_builders import ServerProcess, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving("--max-connections", "50") as made:
        yield made


async def exchange(server: ServerProcess, raw: bytes) -> bytes:
    """Return everything the server answers until it closes, or has answered for a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw)
    answer = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(1.0):
            while part := await reader.read(65536):
                answer += part
    writer.transport.abort()
    return answer


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost x\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"GET /livez HTTP/1.1\r\n" + b"x: y\r\n" * 100 + b"\r\n",
        b"GET /livez HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_given_broken_http_when_sent_then_400_in_json_and_the_connection_ends(
    server: ServerProcess, raw: bytes
) -> None:
    answer = await exchange(server, raw)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    assert (await asyncio.to_thread(server.get, "/livez"))["status"] == "ok"


async def test_given_pipelined_requests_when_sent_then_each_is_answered_in_order(
    server: ServerProcess,
) -> None:
    one = b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n"
    answer = await exchange(server, one * 3)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


async def test_given_a_chunked_body_when_sent_then_it_is_read(server: ServerProcess) -> None:
    body = b'{"prompt": "x", "max_tokens": 1}'
    chunks = b"".join(b"1\r\n" + body[i : i + 1] + b"\r\n" for i in range(len(body)))
    raw = (
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )
    assert (await exchange(server, raw)).startswith(b"HTTP/1.1 200 OK")


async def test_given_a_body_without_end_when_sent_then_it_is_cut_at_the_limit(
    server: ServerProcess,
) -> None:
    raw = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n"
    answer = await exchange(server, raw + b"x" * 2_000_000)
    assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]


async def test_given_more_connections_than_allowed_when_opened_then_the_rest_get_503(
    server: ServerProcess,
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        answer = await exchange(server, b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer


async def test_given_a_head_that_never_ends_when_time_is_over_then_408(
    server: ServerProcess,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    writer.close()
    await writer.wait_closed()
