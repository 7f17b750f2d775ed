"""What the commands do on the cluster: read one InferenceDeployment, ask for a command, pause, resume.

It only ever writes the command annotation and spec.paused; the operator decides what becomes of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from rampway_operator.cluster.client import Client, Object, connect, context_namespace
from rampway_operator.cluster.resources import CONFIG_MAPS, INFERENCE_DEPLOYMENTS
from rampway_operator.core.names import ANNOTATION_COMMAND
from rampway_operator.core.objects import report_name
from rampway_operator.core.revision import revision_hash
from rampway_operator.errors import ApiError, NotFound, Refused, Unauthorized

__all__ = ["CommandFailed", "Session", "Target", "opened"]

ANSWER_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.5


class CommandFailed(Exception):
    """What was asked for cannot be done; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Target:
    """Which cluster and namespace; None means what the kubeconfig says."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None


@dataclass(slots=True)
class Session:
    """One logged-in command."""

    client: Client
    namespace: str

    async def read(self, name: str) -> Object:
        """The InferenceDeployment. Raises CommandFailed with the names that do exist."""
        try:
            return await self.client.get(INFERENCE_DEPLOYMENTS, self.namespace, name)
        except NotFound:
            raise CommandFailed(await self._why_not_found(name)) from None

    async def check_reports(self, name: str, revision: str) -> Object:
        """The ConfigMap with a revision's check reports. Raises CommandFailed where there is none."""
        try:
            return await self.client.get(CONFIG_MAPS, self.namespace, report_name(name, revision))
        except NotFound:
            raise CommandFailed(
                f"no check report of revision {revision or 'none'} of {name}: preflight is off, no check "
                "has ended yet, or the revision is gone (kubectl rampway history)"
            ) from None

    async def command(self, name: str, verb: str) -> str:
        """Ask for a one-shot command; returns its result as the operator recorded it.

        Raises CommandFailed when there is nothing to command, or when the operator does not answer.
        """
        found = await self.read(name)
        revision, step = _addressed(found, verb)
        text = f"{verb}/{revision}/{step}#{secrets.token_hex(4)}"
        await self._patch(name, {"metadata": {"annotations": {ANNOTATION_COMMAND: text}}})
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWER_SECONDS
        while loop.time() < end:
            last = _status(await self.read(name)).get("lastCommand") or {}
            if last.get("id") == text:
                return str(last.get("result", ""))
            await asyncio.sleep(POLL_SECONDS)
        raise CommandFailed(
            f"the operator has not taken the command within {ANSWER_SECONDS:g} s; it stays until the "
            "operator runs again: check the operator's pods"
        )

    async def set_paused(self, name: str, *, paused: bool) -> bool:
        """Set spec.paused; whether that changed anything."""
        found = await self.read(name)
        if bool((found.get("spec") or {}).get("paused")) == paused:
            return False
        await self._patch(name, {"spec": {"paused": paused}})
        return True

    async def _patch(self, name: str, body: Object) -> None:
        await self.client.merge_patch(INFERENCE_DEPLOYMENTS, self.namespace, name, body)

    async def _why_not_found(self, name: str) -> str:
        try:
            others = await self.client.list_objects(
                INFERENCE_DEPLOYMENTS, self.namespace, metadata_only=True
            )
        except NotFound:
            return "this cluster has no InferenceDeployment API; install Rampway's Helm chart first"
        names = ", ".join(sorted(obj["metadata"]["name"] for obj in others))
        there = f"; there are: {names}" if names else "; there is none in this namespace (see -n)"
        return f"InferenceDeployment {name} not found in namespace {self.namespace}{there}"


@asynccontextmanager
async def opened(target: Target) -> AsyncIterator[Session]:
    """A session on the cluster that `target` names. Errors of the API become CommandFailed."""
    try:
        client = await connect(kubeconfig=target.kubeconfig, context=target.context)
        try:
            namespace = target.namespace or context_namespace(target.kubeconfig, target.context)
            yield Session(client, namespace)
        finally:
            await client.close()
    except Unauthorized as error:
        raise CommandFailed(
            "the cluster does not accept these credentials; log in again"
        ) from error
    except Refused as error:
        if error.status == 403:
            raise CommandFailed(f"not allowed: {error}") from error
        raise CommandFailed(f"the API server refuses: {error}") from error
    except ApiError as error:
        raise CommandFailed(str(error)) from error


def _status(found: Object) -> dict[str, Any]:
    return found.get("status") or {}


def _addressed(found: Object, verb: str) -> tuple[str, int]:
    """(revision, step) that the command is about: what its giver sees now."""
    status, name = _status(found), found["metadata"]["name"]
    if verb == "retry":
        failed = status.get("failedRevisions") or ()
        if (found.get("spec") or {}).get("configRefs") and failed:
            # Their content is in the hash, which only the operator can tell.
            return str(failed[-1]["hash"]), 0
        return revision_hash(found), 0
    candidate = (status.get("candidateRevision") or {}).get("hash")
    step = ((status.get("rollout") or {}).get("step") or {}).get("index")
    if not candidate or not isinstance(step, int):
        raise CommandFailed(
            f"nothing to {verb}: {name} has no rollout under way (phase {status.get('phase', 'unknown')})"
        )
    return str(candidate), step
