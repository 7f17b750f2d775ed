"""HTTP to pods by their IP: bounded in time and size, no redirects, no proxies, no decompression.

It does not know what is asked. Whatever a pod answers is treated as hostile.
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from typing import Any, Final

import aiohttp

__all__ = ["PodHttp", "PodRequestFailed"]

ANSWER_LIMIT: Final = 4 * 1024 * 1024
QUOTE_LIMIT: Final = 200


class PodRequestFailed(Exception):
    """A pod did not give a usable answer; the message says why in one line."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status; 0 when there was no answer, or a 200 that cannot be used."""


@dataclass(slots=True)
class PodHttp:
    """Requests to pods. Close it at the end."""

    loopback_allowed: bool = False
    """Only tests have pods on this machine's loopback addresses."""
    _session: aiohttp.ClientSession | None = None

    async def get(self, ip: str, port: int, path: str, *, seconds: float, accept: str) -> bytes:
        """The body of a 200 answer. Raises PodRequestFailed."""
        return await self._request("GET", ip, port, path, seconds=seconds, accept=accept)

    async def get_json(self, ip: str, port: int, path: str, *, seconds: float) -> dict[str, Any]:
        """The JSON object of a 200 answer. Raises PodRequestFailed."""
        return _object(await self.get(ip, port, path, seconds=seconds, accept="application/json"))

    async def post_json(
        self, ip: str, port: int, path: str, body: dict[str, Any], *, seconds: float
    ) -> dict[str, Any]:
        """The JSON object of a 200 answer. Raises PodRequestFailed."""
        answer = await self._request("POST", ip, port, path, seconds=seconds, body=body)
        return _object(answer)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _request(
        self,
        method: str,
        ip: str,
        port: int,
        path: str,
        *,
        seconds: float,
        accept: str = "application/json",
        body: dict[str, Any] | None = None,
    ) -> bytes:
        url = f"http://{self._host(ip)}:{port}{path}"
        timeout = aiohttp.ClientTimeout(total=seconds)
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        try:
            async with self._opened().request(
                method, url, json=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                content = await _bounded(answer)
        except TimeoutError as error:
            raise PodRequestFailed(f"{method} {url}: no answer in {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PodRequestFailed(f"{method} {url}: {str(error)[:QUOTE_LIMIT]}") from error
        if answer.status != 200:
            raise PodRequestFailed(f"{method} {url}: HTTP {answer.status}, need 200", answer.status)
        if answer.headers.get("Content-Encoding", "identity") != "identity":
            raise PodRequestFailed(f"{method} {url}: the answer is compressed though not asked for")
        return content

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A fresh connection each time: a pooled one would outlive the pod and reach who gets its IP.
            connector = aiohttp.TCPConnector(limit=64, force_close=True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _host(self, ip: str) -> str:
        try:
            address = ipaddress.ip_address(ip)
        except ValueError as error:
            raise PodRequestFailed(f"pod IP: got {ip!r}, need an IP address") from error
        wrong = address.is_link_local or address.is_multicast or address.is_unspecified
        if wrong or (address.is_loopback and not self.loopback_allowed):
            raise PodRequestFailed(f"pod IP: got {ip}, need an address of the pod network")
        return f"[{address}]" if address.version == 6 else str(address)


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(64 * 1024):
        content += chunk
        if len(content) > ANSWER_LIMIT:
            raise PodRequestFailed(f"{answer.url}: answer is too large: need <= {ANSWER_LIMIT} B")
    return bytes(content)


def _object(content: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PodRequestFailed("the answer is not JSON") from error
    if not isinstance(parsed, dict):
        raise PodRequestFailed("the answer is not a JSON object")
    return parsed
