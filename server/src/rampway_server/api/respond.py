"""Answers one generation call over raw ASGI: no framework between the step and the socket.

It knows no wire format; a route is a function that turns a body into a `Job`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from rampway_server.api.bridge import ClientGone
from rampway_server.api.endpoints import ROUTES
from rampway_server.api.faults import error_body, send_error, send_json
from rampway_server.api.formats import Whole
from rampway_server.api.generation import Generation
from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from rampway_server.api.faults import Headers
    from rampway_server.api.job import Caller, Job
    from rampway_server.api.service import Service

__all__ = ["answer_generation", "read_body"]

BODY_BYTES = 1 << 20
BODY_BYTES_PER_TOKEN = 16
"""A body may hold 1 MiB of text, and token ids for the whole context."""

log = structlog.get_logger(__name__)


async def answer_generation(
    service: Service, scope: Scope, receive: Receive, send: Send, caller: Caller, headers: Headers
) -> None:
    """Answer and count one call; the client's leaving ends it within one step."""
    outcome = "error"
    try:
        raw = await read_body(receive, max_body_bytes(service))
        job = await ROUTES[scope["path"]](service, raw, caller)
        outcome = await _run(service, job, receive, send, headers)
    except ClientGone:
        outcome = "aborted"
    except RequestError as error:
        outcome = _outcome_of(error)
        await send_error(send, error, headers)
    except Exception:
        log.exception("request_failed", request_id=caller.request_id)
        await send_error(send, _internal(), headers)
    finally:
        if outcome:
            service.telemetry.count_request(outcome)


def max_body_bytes(service: Service) -> int:
    """Return how long a body may be."""
    return BODY_BYTES + BODY_BYTES_PER_TOKEN * service.loaded.context_length


async def read_body(receive: Receive, limit: int) -> bytes:
    """Return the whole body; raises 413 past the limit and ClientGone when it never comes."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise RequestError(
                f"body is too large: got more than {limit} bytes",
                status=413,
                code="body_too_large",
            )
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _run(service: Service, job: Job, receive: Receive, send: Send, headers: Headers) -> str:
    loaded = service.require_open()
    generation = Generation(loaded.bridge, loaded.tokenizer, job.requests, job.body)
    watcher = asyncio.create_task(_watch(receive, generation))
    try:
        if job.stream:
            return await _send_stream(generation, job, send, headers)
        await _send_whole(generation, job, send, headers)
        return "ok"
    finally:
        watcher.cancel()
        generation.close()


async def _watch(receive: Receive, generation: Generation) -> None:
    """Abort at once when the client goes; a handler that only sends would never notice."""
    while (await receive())["type"] != "http.disconnect":
        pass
    generation.close()
    generation.stream.fail(ClientGone())


async def _send_whole(generation: Generation, job: Job, send: Send, headers: Headers) -> None:
    texts = [Whole() for _ in generation.choices]
    while not generation.done:
        for event in await generation.events():
            text = texts[event.index]
            text.text += event.text
            text.samples += event.samples
            text.finish = None if event.finish is None else event.finish.value
    await send_json(send, job.format.whole(texts, generation.usage()), headers)


async def _send_stream(generation: Generation, job: Job, send: Send, headers: Headers) -> str:
    """Send events as they come, one `send` a wake; a failure after the first becomes an event."""
    # The status waits for the first token: until then a failure can still have its own.
    events = await generation.events()
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-cache"),
                (b"x-accel-buffering", b"no"),
                *headers,
            ],
        }
    )
    render = job.format.event
    body = job.format.head(len(generation.choices))
    try:
        while True:
            if job.usage_in_events:
                body += b"".join([render(event, generation.usage(event)) for event in events])
            else:
                body += b"".join([render(event, None) for event in events])
            if generation.done:
                break
            await send({"type": "http.response.body", "body": body, "more_body": True})
            body = b""
            events = await generation.events()
    except RequestError as error:
        failed = b"data: " + error_body(error) + b"\n\n"
        await send({"type": "http.response.body", "body": failed})
        # The client had a 200: whatever the status would have been, this answer is broken.
        return "error"
    body += job.format.tail(generation.usage())
    await send({"type": "http.response.body", "body": body})
    return "ok"


def _outcome_of(error: RequestError) -> str:
    """Return how a failed call is counted; "" for the client's own mistakes."""
    if error.status in {429, 503}:
        return "rejected"
    return "error" if error.status >= 500 else ""


def _internal() -> RequestError:
    return RequestError(
        "internal error: the server's log has it under this request id",
        status=500,
        kind="server_error",
        code="internal_error",
    )
