"""The ASGI application: keys and request ids for all, raw answers for generation, FastAPI for the rest.

It knows no engine beyond the service, and no socket.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import Response

from rampway_server.api.endpoints import ROUTES
from rampway_server.api.faults import error_body, error_headers, send_error
from rampway_server.api.info import router
from rampway_server.api.job import Caller
from rampway_server.api.respond import answer_generation
from rampway_server.errors import RequestError
from rampway_server.telemetry import CONTENT_TYPE

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from rampway_server.api.faults import Headers
    from rampway_server.api.service import Service
    from rampway_server.telemetry import Telemetry

__all__ = ["Front", "MetricsApp", "build_app"]

OPEN_PATHS = frozenset({"/livez", "/readyz", "/health", "/ping", "/version"})
"""Answered without a key."""
REQUEST_ID = re.compile(rb"[!-~]{1,128}")


def build_app(service: Service) -> ASGIApp:
    """Return the application of the API port."""
    inner = FastAPI(title="Rampway", docs_url=None, redoc_url=None, openapi_url=None)
    inner.state.service = service
    inner.include_router(router)
    inner.add_exception_handler(RequestError, _answer_fault)
    inner.add_exception_handler(StarletteHTTPException, _answer_http)
    return Front(service, inner)


class Front:
    """The outermost application; generation goes past FastAPI, whose layers cost a call a token."""

    def __init__(self, service: Service, inner: ASGIApp) -> None:
        self._service = service
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        if scope["type"] != "http":
            return
        given = dict(scope["headers"])
        request_id = _request_id(given.get(b"x-request-id"))
        headers: Headers = [(b"x-request-id", request_id.encode())]
        path = scope["path"]
        try:
            tenant = ""
            if path not in OPEN_PATHS:
                tenant = self._service.keys.tenant_of(given.get(b"authorization"))
        except RequestError as error:
            await send_error(send, error, headers)
            return
        if path in ROUTES and scope["method"] == "POST":
            caller = Caller(tenant, request_id)
            await answer_generation(self._service, scope, receive, send, caller, headers)
        elif path in ROUTES:
            fault = RequestError(f"{path} takes POST only", status=405, code="method_not_allowed")
            await send_error(send, fault, [(b"allow", b"POST"), *headers])
        else:
            await self._inner(scope, receive, _with_headers(send, headers))


def _with_headers(send: Send, headers: Headers) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *headers]
        await send(message)

    return wrapped


def _request_id(given: bytes | None) -> str:
    """Return the client's id when it is short and printable, else a new one."""
    if given is not None and REQUEST_ID.fullmatch(given):
        return given.decode()
    return secrets.token_hex(12)


async def _answer_fault(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, RequestError)
    return _fault_response(error)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    kinds = {404: "not_found", 405: "method_not_allowed"}
    texts = {404: "path does not exist", 405: "method is not allowed here"}
    return _fault_response(
        RequestError(
            f"{texts.get(error.status_code, 'request failed')}: {request.method}",
            status=error.status_code,
            code=kinds.get(error.status_code),
        )
    )


def _fault_response(error: RequestError) -> Response:
    response = Response(error_body(error), error.status, media_type="application/json")
    for name, value in error_headers(error):
        response.headers[name.decode()] = value.decode()
    return response


class MetricsApp:
    """The application of the metrics port: GET /metrics and nothing else."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request."""
        del receive
        if scope["type"] != "http":
            return
        if scope["path"] != "/metrics" or scope["method"] not in {"GET", "HEAD"}:
            error = RequestError("only GET /metrics is here", status=404, code="not_found")
            await send_error(send, error, [])
            return
        body = self._telemetry.render()
        head = [
            (b"content-type", CONTENT_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})
