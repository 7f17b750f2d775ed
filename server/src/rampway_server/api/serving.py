"""Listens, speaks HTTP through uvicorn's protocol, and ends without losing a request.

It knows no route: an ASGI application in, bytes out. uvicorn's own server refuses connections the
moment SIGTERM comes and exits with 143, so the life of sockets and connections is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from rampway_server.api.faults import error_body
from rampway_server.errors import RequestError, UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["HttpServer", "listen"]

KEEP_ALIVE_SECONDS = 75.0
"""Longer than the pools of common clients keep an idle connection, so that they close first."""
READ_SECONDS = 10.0
"""A request's head and body must have come within this time."""
MAX_HEADERS, MAX_HEADER_BYTES = 64, 16 * 1024
LINGER_SECONDS = 4.0
"""How long a connection must have been idle before a draining server closes it. Whoever sends in the
moment of the close loses the request, and a client on a busy machine pauses for a second unasked."""
POLL_SECONDS = 0.05
BACKLOG = 2048


def listen(host: str, port: int, flag: str) -> socket.socket:
    """Return a bound socket that listens; raises UsageError when the port cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        sock.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{flag} cannot listen on {host}:{port}: {reason}; choose another port or address,"
            " or stop what uses it"
        ) from error
    sock.setblocking(False)  # noqa: FBT003 - the standard library's signature
    return sock


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol with deadlines and bounds, and a note of since when it is idle."""

    def __init__(self, *args: Any, max_connections: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._max_connections = max_connections
        self.idle_since = time.monotonic()
        self._read_deadline: asyncio.TimerHandle | None = None
        self._in_head = False
        self._header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._refuse("too many connections are open", 503)
            return
        # uvicorn arms this only after the first response.
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_read_deadline()
        super().connection_lost(exc)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being read or answered."""
        return self._read_deadline is None and (self.cycle is None or self.cycle.response_complete)

    def close_if_unused(self) -> bool:
        """Close an idle connection unless a request already lies in its socket's buffer."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None and _has_bytes(raw.fileno()):
            return False
        self.transport.close()
        return True

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.close_if_unused()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._header_bytes = 0
        self._stop_read_deadline()
        self._read_deadline = self.loop.call_later(READ_SECONDS, self._too_slow)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._bound_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._bound_head(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._stop_read_deadline()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.idle_since = time.monotonic()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(msg, 400)

    def _bound_head(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES or len(self.headers) > MAX_HEADERS:
            # httptools turns this into a parser error, which uvicorn answers with our 400.
            raise ValueError("request head is too large")

    def _too_slow(self) -> None:
        self._read_deadline = None
        if self._in_head:
            self._refuse("request did not come in time", 408)
        else:
            # The application has the request: for it the client is gone.
            self.transport.close()

    def _refuse(self, text: str, status: int) -> None:
        if self.transport.is_closing():
            return
        body = error_body(RequestError(text, status=status))
        head = (
            f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _stop_read_deadline(self) -> None:
        if self._read_deadline is not None:
            self._read_deadline.cancel()
            self._read_deadline = None


def _has_bytes(fileno: int) -> bool:
    """Whether a request arrived that the loop has not read yet."""
    with socket.socket(fileno=socket.dup(fileno)) as peek:
        try:
            return bool(peek.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except (BlockingIOError, ConnectionError):
            return False


class HttpServer:
    """One application on one listening socket."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        *,
        max_connections: int,
        headers: list[tuple[str, str]] | None = None,
    ) -> None:
        self._config = Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(KEEP_ALIVE_SECONDS),
            headers=headers,
        )
        self._config.load()
        self._socket = sock
        self._max_connections = max_connections
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._ending = False
        self._refresh: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        """The port that was bound."""
        port: int = self._socket.getsockname()[1]
        return port

    async def start(self) -> None:
        """Accept connections."""
        # Its lines repeat what our answers say, without our keys.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._refresh_headers()
        loop = asyncio.get_running_loop()
        # The loop gets a copy: ours outlives it, to empty the backlog at the end.
        self._server = await loop.create_server(self._new_protocol, sock=self._socket.dup())

    def announce_end(self) -> None:
        """From now on every response, also of requests that run, says `Connection: close`."""
        self._ending = True
        self._refresh_headers()

    async def stop_listening(self) -> None:
        """Refuse new connections; those the kernel accepted already are still served."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                break
            accepted.setblocking(False)  # noqa: FBT003 - the standard library's signature
            await loop.connect_accepted_socket(self._new_protocol, accepted)
        self._socket.close()

    async def finish(self, until: asyncio.Event, timeout_seconds: float) -> bool:
        """Wait until every connection has ended, closing those that are idle for a while.

        Returns False when the time is over or `until` is set first.
        """
        deadline = time.monotonic() + timeout_seconds
        while self._close_idle() and time.monotonic() < deadline and not until.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await until.wait()
        return not self._state.connections

    def abort(self) -> None:
        """Cut what is still open."""
        for connection in list(self._state.connections):
            connection.transport.abort()

    def _close_idle(self) -> int:
        """Close connections idle for longer than the linger; return how many are left."""
        before = time.monotonic() - LINGER_SECONDS
        for connection in list(self._state.connections):
            assert isinstance(connection, _Protocol)
            if connection.is_idle and connection.idle_since <= before:
                connection.close_if_unused()
        return len(self._state.connections)

    def _new_protocol(self) -> _Protocol:
        return _Protocol(
            config=self._config,
            server_state=self._state,
            app_state={},
            max_connections=self._max_connections,
        )

    def _refresh_headers(self) -> None:
        """Set the headers of all responses, once a second for the date."""
        headers = [(b"date", formatdate(time.time(), usegmt=True).encode())]
        headers += self._config.encoded_headers
        if self._ending:
            headers.append((b"connection", b"close"))
        # In place: a response that has not begun yet holds this very list.
        self._state.default_headers[:] = headers
        if self._refresh is not None:
            self._refresh.cancel()
        self._refresh = asyncio.get_running_loop().call_later(1.0, self._refresh_headers)
