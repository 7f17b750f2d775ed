"""A small API server in memory: enough of Kubernetes' rules to test clients against, plus faults on request.

resourceVersions are preconditions, names are unique, deletes honour UIDs, lists page and select by label,
status is a subresource. It validates nothing and controls nothing.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Place = tuple[str, str, str]  # plural, namespace, name


@dataclass
class Fault:
    """Answers `status` instead of (or `after`) doing what was asked; used up after `times` matches."""

    status: int
    verb: str = ""
    plural: str = ""
    after: bool = False
    kills: bool = False
    """Whoever asked is dead from then on: nothing it sends is done any more."""
    skip: int = 0
    """Matches that pass before the first that is answered by the fault."""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    stall: float = 0.0


class ApiServer:
    """Start it with `async with`; `kubeconfig` is a file that leads to it."""

    def __init__(self, folder: Path) -> None:
        self.objects: dict[Place, Object] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.token = "valid"
        self.served = True
        self.killed = False
        self.pruned: set[str] = set()
        """Fields of status that the CRD does not have."""
        self.kubeconfig = folder / "kubeconfig"
        self._versions = itertools.count(1)

    async def __aenter__(self) -> ApiServer:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.write_kubeconfig()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def write_kubeconfig(self, *, token: str = "valid", namespace: str = "prod") -> None:
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "main", "context": context}],
            "current-context": "main",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def put(self, plural: str, obj: Object) -> Object:
        """Store an object as another client would have made it."""
        obj = copy.deepcopy(obj)
        metadata = obj.setdefault("metadata", {})
        metadata.setdefault("namespace", "prod")
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("creationTimestamp", "2026-11-30T12:00:00Z")
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[plural, metadata["namespace"], metadata["name"]] = obj
        return obj

    def get(self, plural: str, name: str, namespace: str = "prod") -> Object | None:
        return self.objects.get((plural, namespace, name))

    def all(self, plural: str) -> list[Object]:
        return [obj for (kind, _, _), obj in sorted(self.objects.items()) if kind == plural]

    def writes(self) -> list[tuple[str, str]]:
        return [(verb, path) for verb, path in self.requests if verb not in ("get", "list")]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _failure(401, "Unauthorized")
        namespace, plural, name, subresource = _address(request.path)
        verb = {"GET": "get" if name else "list", "POST": "create", "PATCH": "patch"}.get(
            request.method, "delete"
        )
        self.requests.append((verb, request.path))
        if self.killed:
            return _failure(503, "killed")
        fault = self._fault(verb, plural)
        if fault:
            self.killed = fault.kills
            await asyncio.sleep(fault.stall)
            if not fault.after:
                return _failure(fault.status, "fault", fault.headers)
        body = await request.json() if request.can_read_body else {}
        answer = self._answer(request, verb, (plural, namespace, name), subresource, body)
        return _failure(fault.status, "fault", fault.headers) if fault else answer

    def _fault(self, verb: str, plural: str) -> Fault | None:
        for fault in self.faults:
            writes = verb not in ("get", "list")
            if fault.verb not in ("", verb) and not (fault.verb == "write" and writes):
                continue
            if fault.plural not in ("", plural) or fault.times == 0:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            return fault
        return None

    def _answer(
        self, request: web.Request, verb: str, place: Place, subresource: str, body: Object
    ) -> web.Response:
        plural, namespace, name = place
        if not self.served and plural == "inferencedeployments":
            return _failure(404, "page not found")
        if verb == "list":
            return self._list(request, plural, namespace)
        if verb == "create":
            return self._create(plural, namespace, body)
        found = self.objects.get(place)
        if request.content_type == "application/apply-patch+yaml":
            return self._apply(request, place, found, body)
        if found is None:
            return _failure(404, f'{plural} "{name}" not found')
        if verb == "get":
            return web.json_response(found)
        if verb == "delete":
            if (
                body.get("preconditions", {}).get("uid", found["metadata"]["uid"])
                != found["metadata"]["uid"]
            ):
                return _failure(409, "the UID in the precondition does not match")
            del self.objects[place]
            return web.json_response({"kind": "Status"})
        return self._patch(place, found, body, subresource)

    def _create(self, plural: str, namespace: str, body: Object) -> web.Response:
        if (plural, namespace, body["metadata"]["name"]) in self.objects:
            return _failure(409, "already exists", reason="AlreadyExists")
        body["metadata"]["namespace"] = namespace
        return web.json_response(self.put(plural, body), status=201)

    def _apply(
        self, request: web.Request, place: Place, found: Object | None, body: Object
    ) -> web.Response:
        """Server-side apply of one manager that owns all of an object, or nothing of it."""
        uid = body["metadata"].pop("uid", None)
        if uid is not None and (found is None or found["metadata"]["uid"] != uid):
            return _failure(409, "uid mismatch")
        if found is None:
            return self._create(place[0], place[1], body)
        if request.query.get("force") != "true":
            return _failure(409, "conflict with another field manager")
        return self._patch(place, found, body, "")

    def _patch(self, place: Place, found: Object, body: Object, subresource: str) -> web.Response:
        version = body.get("metadata", {}).pop("resourceVersion", None)
        if version not in (None, found["metadata"]["resourceVersion"]):
            return _failure(409, "the object has been modified")
        if subresource == "status":
            wanted = body.get("status", {})
            body = {"status": {k: v for k, v in wanted.items() if k not in self.pruned}}
        else:
            body.pop("status", None) if place[0] == "inferencedeployments" else None
        merged = merge(found, body)
        if merged != found:
            if merged.get("spec") != found.get("spec"):
                merged["metadata"]["generation"] = merged["metadata"].get("generation", 0) + 1
            merged["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[place] = merged
        return web.json_response(merged)

    def _list(self, request: web.Request, plural: str, namespace: str) -> web.Response:
        wanted = dict(
            part.split("=", 1)
            for part in request.query.get("labelSelector", "").split(",")
            if "=" in part
        )
        items = [
            obj
            for obj in self.all(plural)
            if namespace in ("", obj["metadata"]["namespace"])
            and wanted.items() <= obj["metadata"].get("labels", {}).items()
        ]
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit", "100000"))
        metadata = {"continue": str(end)} if end < len(items) else {}
        items = items[start:end]
        if "PartialObjectMetadata" in request.headers["Accept"]:
            items = [{"metadata": obj["metadata"]} for obj in items]
        return web.json_response({"items": items, "metadata": metadata})


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def _address(path: str) -> tuple[str, str, str, str]:
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, subresource, *_ = [*parts, "", ""]
    return namespace, plural, name, subresource


def _failure(
    status: int, message: str, headers: dict[str, str] | None = None, *, reason: str = ""
) -> web.Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    return web.json_response(body, status=status, headers=headers)
