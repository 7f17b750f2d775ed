"""Asks a Prometheus of the operator's settings: bounded in time and size, no redirects, no proxies.

It does not know what is asked or what the answer means. Address and credentials are the operator's, never
those of an InferenceDeployment.
"""

from __future__ import annotations

import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import aiohttp

from rampway_operator.cluster.pod_http import ANSWER_LIMIT, QUOTE_LIMIT
from rampway_operator.settings import PrometheusSettings

__all__ = ["Prometheus", "PrometheusFailed"]

QUERY_SECONDS: Final = 5.0


class PrometheusFailed(Exception):
    """Prometheus did not give a usable answer; the message says why in one line, without credentials."""


@dataclass(slots=True)
class Prometheus:
    """One named source. Close it at the end."""

    settings: PrometheusSettings
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def query(self, promql: str, at: float | None = None) -> Any:
        """The parsed JSON answer to an instant query. Raises PrometheusFailed.

        `at` is Unix time in seconds; None is Prometheus' own now.
        """
        form = {"query": promql, "timeout": f"{QUERY_SECONDS:g}s"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        url = f"{self.settings.url.rstrip('/')}/api/v1/query"
        try:
            async with self._opened().post(
                url,
                data=form,
                headers={"Accept-Encoding": "identity", **self._authorization()},
                allow_redirects=False,
            ) as answer:
                body = await self._bounded(answer)
        except TimeoutError as error:
            raise PrometheusFailed(f"{self._name}: no answer in {QUERY_SECONDS:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise PrometheusFailed(f"{self._name}: {str(error)[:QUOTE_LIMIT]}") from error
        if answer.status != 200:
            said = body[:QUOTE_LIMIT].decode("utf-8", "replace")
            raise PrometheusFailed(f"{self._name}: HTTP {answer.status}, need 200: {said!r}")
        return self._parsed(body)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def _name(self) -> str:
        return f"Prometheus {self.settings.name} at {self.settings.url}"

    def _authorization(self) -> dict[str, str]:
        """Read anew each time: mounted tokens are exchanged while the operator runs."""
        if not self.settings.token_file:
            return {}
        token = Path(self.settings.token_file).read_text(encoding="utf-8").strip()
        return {"Authorization": f"Bearer {token}"}

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            ca_file = self.settings.ca_file
            tls: ssl.SSLContext | bool = (
                ssl.create_default_context(cafile=ca_file) if ca_file else True
            )
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=8, ssl=tls),
                timeout=aiohttp.ClientTimeout(total=QUERY_SECONDS),
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _bounded(self, answer: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(64 * 1024):
            body += chunk
            if len(body) > ANSWER_LIMIT:
                raise PrometheusFailed(
                    f"{self._name}: answer is too large: need <= {ANSWER_LIMIT} B"
                )
        return bytes(body)

    def _parsed(self, body: bytes) -> Any:
        def refused(constant: str) -> NoReturn:
            raise ValueError(f"{constant} is not JSON")

        try:
            return json.loads(body, parse_constant=refused)
        except (ValueError, RecursionError) as error:
            raise PrometheusFailed(f"{self._name}: the answer is not JSON") from error
