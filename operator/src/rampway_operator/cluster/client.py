"""The one way to the API server: typed calls on plain dicts with timeouts, retries and preconditions.

It alone imports the Kubernetes client library, and it does not know what the objects mean.
"""

# mypy: untyped-calls-exclude=kubernetes
from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import yaml
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from rampway_operator.cluster.resources import Resource
from rampway_operator.errors import (
    ApiError,
    NotFound,
    Unauthorized,
    Unavailable,
    error_for_status,
)

__all__ = [
    "FIELD_MANAGER",
    "Client",
    "Credentials",
    "Object",
    "connect",
    "context_namespace",
    "read_credentials",
]

Object = dict[str, Any]
"""One Kubernetes object, as JSON."""

FIELD_MANAGER: Final = "rampway"
REQUEST_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 5.0
PAGE: Final = 250
READ_RETRY_SECONDS: Final = (0.2, 0.5, 1.0)
LONGEST_RETRY_AFTER: Final = 5.0
_BAD_KUBECONFIG: Final = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
)
"""The library assumes a well-formed file and fails in many ways on others."""
METHODS: Final = {
    "create": ("POST", "application/json"),
    "patch": ("PATCH", "application/merge-patch+json"),
    "apply": ("PATCH", "application/apply-patch+yaml"),
    "delete": ("DELETE", "application/json"),
}
"""Verb of this module to HTTP method and content type; JSON is YAML, too."""
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(slots=True)
class Client:
    """Calls of the API server. Every failure is an `ApiError` of the kind that says what to do about it."""

    login: Callable[[], Awaitable[Configuration]]
    on_write: Callable[[str, str], None] = lambda _verb, _resource: None
    """Told of every write that is sent, as (verb, plural)."""
    writes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Writes sent so far by (verb, plural)."""
    _api: ApiClient | None = None
    _login_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """The object, read from etcd and not from a cache. Raises NotFound."""
        return await self._read(resource.path(namespace, name))

    async def list_objects(
        self,
        resource: Resource,
        namespace: str,
        *,
        labels: str = "",
        metadata_only: bool = False,
    ) -> list[Object]:
        """All objects with these labels, in pages. `metadata_only` leaves spec, status and data out."""
        try:
            return await self._pages(resource, namespace, labels, metadata_only=metadata_only)
        except NotFound as error:
            if error.status != 410:
                raise
        # The continue token expired between two pages: begin again, once.
        return await self._pages(resource, namespace, labels, metadata_only=metadata_only)

    async def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """The object as made. Raises Conflict when the name is taken."""
        return await self._write("create", resource, resource.path(namespace), body)

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Object,
        *,
        subresource: str = "",
    ) -> Object:
        """The object after the patch. A `metadata.resourceVersion` in `body` is a precondition: else Conflict."""
        path = resource.path(namespace, name, subresource)
        return await self._write("patch", resource, path, body)

    async def apply(
        self, resource: Resource, namespace: str, name: str, body: Object, *, force: bool
    ) -> Object:
        """Server-side apply of all that `body` names, as the one field manager of this operator.

        A `metadata.uid` in `body` is a precondition. Without `force` a field of another manager is a
        Conflict. An identical apply writes nothing.
        """
        path = resource.path(namespace, name)
        return await self._write("apply", resource, path, body, force=force)

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        resource_version: str = "",
    ) -> None:
        """Delete exactly the object with this UID; an object that is gone already counts as deleted."""
        conditions = {"uid": uid}
        if resource_version:
            conditions["resourceVersion"] = resource_version
        body = {"preconditions": conditions, "propagationPolicy": "Background"}
        try:
            await self._write("delete", resource, resource.path(namespace, name), body)
        except NotFound:
            return

    async def close(self) -> None:
        """Close the connections; a later call opens them again."""
        if self._api is not None:
            await self._api.close()
            self._api = None

    async def _pages(
        self, resource: Resource, namespace: str, labels: str, *, metadata_only: bool
    ) -> list[Object]:
        items: list[Object] = []
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._read(
                f"{resource.path(namespace)}?{urlencode(query)}",
                accept=METADATA_ONLY if metadata_only else "application/json",
            )
            items += page.get("items") or []
            query["continue"] = page.get("metadata", {}).get("continue") or ""
            if not query["continue"]:
                return items

    async def _read(self, path: str, *, accept: str = "application/json") -> Object:
        for pause in READ_RETRY_SECONDS:
            try:
                return await self._call("GET", path, accept=accept)
            except Unavailable as error:
                await asyncio.sleep(max(pause, min(error.retry_after, LONGEST_RETRY_AFTER)))
        return await self._call("GET", path, accept=accept)

    async def _write(
        self, verb: str, resource: Resource, path: str, body: Object, *, force: bool = False
    ) -> Object:
        """Writes are sent once: whoever asked reads again and decides again when one fails."""
        self.writes[verb, resource.plural] += 1
        self.on_write(verb, resource.plural)
        method, content = METHODS[verb]
        query = "" if verb == "delete" else f"?fieldManager={FIELD_MANAGER}"
        query += "&force=true" if force else ""
        return await self._call(method, path + query, body, content=content)

    async def _call(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        accept: str = "application/json",
        content: str = "application/json",
    ) -> Object:
        api, headers = await self._connected(), {"Accept": accept, "Content-Type": content}
        try:
            return await _request(api, method, path, body, headers)
        except Unauthorized:
            await self._drop(api)
        return await _request(await self._connected(), method, path, body, headers)

    async def _connected(self) -> ApiClient:
        async with self._login_lock:
            if self._api is None:
                configuration = await self.login()
                try:
                    self._api = ApiClient(configuration)
                except OSError as error:  # certificates that cannot be read or used
                    raise ApiError(f"cannot log in to a cluster: {error}") from error
                self._api.user_agent = "rampway-operator"
            return self._api

    async def _drop(self, api: ApiClient) -> None:
        """Forget a login that is not accepted any more, unless another call has renewed it already."""
        async with self._login_lock:
            if self._api is api:
                self._api = None
        await api.close()


async def _request(
    api: ApiClient, method: str, path: str, body: Object | None, wanted: dict[str, str]
) -> Object:
    headers = dict(wanted)  # the login adds its own
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
    try:
        await api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = api.configuration.host + path
        response = await api.rest_client.request(
            method, url, headers=headers, body=body, _request_timeout=timeout
        )
        payload = await response.read()
    except TimeoutError as error:
        raise Unavailable(f"{method} {path}: no answer in {REQUEST_SECONDS:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(f"{method} {path}: {error}") from error
    return _parsed(method, path, response.status, response.headers, payload)


def _parsed(method: str, path: str, status: int, headers: Any, payload: bytes) -> Object:
    try:
        answer = json.loads(payload) if payload else {}
    except ValueError as error:
        if 200 <= status < 300:
            raise Unavailable(f"{method} {path}: the answer is not JSON", status=status) from error
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    if 200 <= status < 300:
        return answer
    message = str(answer.get("message") or f"{method} {path}: HTTP {status}")
    wait = headers.get("Retry-After", "")
    raise error_for_status(
        status,
        message,
        reason=str(answer.get("reason") or ""),
        retry_after=float(wait) if wait.isascii() and wait.isdigit() else 0.0,
    )


async def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    on_write: Callable[[str, str], None] = lambda _verb, _resource: None,
) -> Client:
    """A client with the pod's service account when there is one and no kubeconfig is named, else a kubeconfig's.

    Raises ApiError when there is nothing to log in with.
    """
    client = Client(lambda: _login(kubeconfig, context), on_write)
    await client._connected()  # noqa: SLF001 a wrong login is reported now, not by the first call
    return client


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach the API server, for those that bring their own connections."""

    server: str
    ca_path: str | None
    certificate_path: str | None
    private_key_path: str | None
    authorization: str
    """`<scheme> <token>`; empty with a client certificate."""
    insecure: bool


async def read_credentials(kubeconfig: str | None = None) -> Credentials:
    """What `connect` would log in with, read afresh. Raises ApiError."""
    configuration = await _login(kubeconfig, None)
    return Credentials(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        authorization=await configuration.get_api_key_with_prefix("BearerToken") or "",
        insecure=not configuration.verify_ssl,
    )


def context_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """The namespace that the kubeconfig's context names; `default` when it names none. Raises ApiError."""
    try:
        contexts, active = list_kube_config_contexts(_kubeconfig_path(kubeconfig))
        chosen = next((c for c in contexts if c["name"] == context), active)
        return str((chosen.get("context") or {}).get("namespace") or "default")
    except _BAD_KUBECONFIG as error:
        raise ApiError(f"cannot read the kubeconfig: {error}") from error


def _kubeconfig_path(kubeconfig: str | None) -> str:
    return kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"


async def _login(kubeconfig: str | None, context: str | None) -> Configuration:
    # Made like this by the library itself: a bare call would copy process-wide defaults.
    configuration: Configuration = type.__call__(Configuration)
    try:
        if kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            load_incluster_config(client_configuration=configuration)
        else:
            await load_kube_config(
                config_file=_kubeconfig_path(kubeconfig),
                context=context,
                client_configuration=configuration,
                persist_config=False,
            )
    except (ConfigException, OSError) as error:
        raise ApiError(f"cannot log in to a cluster: {error}") from error
    except _BAD_KUBECONFIG as error:
        raise ApiError(
            f"cannot log in to a cluster: {_kubeconfig_path(kubeconfig)} is not a kubeconfig"
        ) from error
    # Proxy variables of the environment must not carry API calls elsewhere.
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration
