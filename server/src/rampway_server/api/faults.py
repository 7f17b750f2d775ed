"""Faults of a request as OpenAI's error object, and raw ASGI answers.

It knows no route: who raises a `RequestError` decides status, type, field and code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import ValidationError
    from starlette.types import Send

__all__ = ["error_body", "field_path", "from_validation", "send_bytes", "send_error", "send_json"]

Headers = list[tuple[bytes, bytes]]

MAX_REPORTED_FAULTS = 8
UNKNOWN = "extra_forbidden"


def error_body(error: RequestError) -> bytes:
    """Return the JSON body OpenAI clients parse into their exception."""
    return orjson.dumps(
        {
            "error": {
                "message": error.message,
                "type": error.kind,
                "param": error.param,
                "code": error.code,
            }
        }
    )


def from_validation(error: ValidationError) -> RequestError:
    """Return one 400 that names every wrong field; values are not repeated, they may be secret."""
    faults = [
        (field_path(fault["loc"]), fault["type"], fault["msg"])
        for fault in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    # A union complains once a branch: "not a string" is noise beside what is wrong in the list.
    paths = [path for path, _, _ in faults]
    faults = [
        fault
        for fault in faults
        if not (fault[1].endswith("_type") and any(_is_inside(path, fault[0]) for path in paths))
    ]
    lines = [
        f"{path}: {'unknown or unsupported field' if kind == UNKNOWN else message}"
        for path, kind, message in faults[:MAX_REPORTED_FAULTS]
    ]
    if len(faults) > MAX_REPORTED_FAULTS:
        lines.append(f"and {len(faults) - MAX_REPORTED_FAULTS} more")
    first_path, first_kind, _ = faults[0]
    code = "unknown_parameter" if first_kind == UNKNOWN else "invalid_value"
    return RequestError("; ".join(lines), param=first_path, code=code)


def _is_inside(path: str, outer: str) -> bool:
    return path.startswith((f"{outer}[", f"{outer}."))


def field_path(location: Iterable[str | int]) -> str:
    """Return `messages[0].content`; names of union branches, which clients never sent, are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _BRANCHES:
            path += f".{part}" if path else part
    return path or "body"


_BRANCHES = {"str", "int", "float", "bool"}


def error_headers(error: RequestError) -> Headers:
    """Return the headers that belong to the status: when to come back, and if on a new connection."""
    headers: Headers = []
    if error.retry_after_seconds is not None:
        headers.append((b"retry-after", str(error.retry_after_seconds).encode()))
    if error.status in {413, 503}:
        headers.append((b"connection", b"close"))
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    return headers


async def send_error(send: Send, error: RequestError, headers: Headers) -> None:
    """Answer with the error."""
    await send_bytes(send, error.status, error_body(error), [*headers, *error_headers(error)])


async def send_json(send: Send, value: Any, headers: Headers) -> None:
    """Answer 200 with a JSON value."""
    await send_bytes(send, 200, orjson.dumps(value), headers)


async def send_bytes(send: Send, status: int, body: bytes, headers: Headers) -> None:
    """Answer with a JSON body that is already bytes."""
    head: Headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
