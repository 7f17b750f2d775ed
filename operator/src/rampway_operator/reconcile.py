"""One look at one InferenceDeployment: observe, decide, remember, act, in that order.

It does not know how a decision is made nor how an action is carried out. What is remembered is stored
before anything is done about it, so this process may die between any two lines.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from rampway_operator.cluster.apply import Applier
from rampway_operator.cluster.client import Client, Object
from rampway_operator.cluster.events import RECENT, event_from, event_name
from rampway_operator.cluster.memory import Memory
from rampway_operator.cluster.merge import merge_diff, paths
from rampway_operator.cluster.metric_sources import MetricSources
from rampway_operator.cluster.observe import Observer
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.cluster.prometheus import Prometheus
from rampway_operator.cluster.resources import EVENTS, INFERENCE_DEPLOYMENTS
from rampway_operator.cluster.smoke import SmokeTests
from rampway_operator.core.decide import decide
from rampway_operator.core.moves import Move
from rampway_operator.core.observed import Observed
from rampway_operator.core.parse import InvalidSpec, parse
from rampway_operator.core.plan import plan
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import State
from rampway_operator.core.status import invalid_status, state_from_status, status_from_state
from rampway_operator.errors import ApiError, Conflict, NotFound, Refused
from rampway_operator.queue import Key
from rampway_operator.telemetry import Telemetry

__all__ = ["Reconciler"]

RESYNC_SECONDS: Final = 60.0
RESYNC_SPREAD: Final = 0.2
REFUSED_SECONDS: Final = 60.0
CONFLICT_SECONDS: Final = 0.05
LONGEST_CONFLICT_SECONDS: Final = 5.0

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Reconciler:
    """Looks at objects, one call a look."""

    client: Client
    telemetry: Telemetry
    wake: Callable[[Key], None]
    """Has a key looked at again soon."""
    http: PodHttp = field(default_factory=PodHttp)
    prometheus: Mapping[str, Prometheus] = field(default_factory=dict)
    """Metrics sources by the name that InferenceDeployments use."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    jitter: Callable[[], float] = random.random
    _smoke: SmokeTests = field(init=False)
    _sources: MetricSources = field(init=False)
    _observer: Observer = field(init=False)
    _memories: dict[Key, Memory] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._smoke = SmokeTests(self.http)
        self._sources = MetricSources(self.http, self.prometheus)
        self._observer = Observer(self.client, self._sources, self._smoke)

    async def reconcile(self, key: Key) -> float | None:
        """Seconds until the next look; None when the object is gone. Raises what is to be backed off from."""
        memory = self._memories.setdefault(key, Memory())
        began = time.perf_counter()
        result = "error"
        try:
            again = await self._look(key, memory)
            result, memory.conflicts = "ok", 0
        except Conflict as error:
            result = "conflict"
            again = min(LONGEST_CONFLICT_SECONDS, CONFLICT_SECONDS * 2**memory.conflicts)
            memory.conflicts = min(memory.conflicts + 1, 10)
            log.info("someone else wrote first; looking again", key=str(key), error=str(error))
        except Refused as error:
            result, again = "refused", REFUSED_SECONDS
            log.warning("request refused", key=str(key), error=str(error))
            with suppress(ApiError):
                await self._report_refusal(key, error)
        finally:
            seconds = time.perf_counter() - began
            self.telemetry.reconcile_seconds.labels(result).observe(seconds)
        return again

    async def close(self) -> None:
        """Stop everything that runs in the background."""
        for memory in self._memories.values():
            await memory.close()
        await self._smoke.close()
        await self._sources.close()

    async def _look(self, key: Key, memory: Memory) -> float | None:
        try:
            found = await self.client.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
        except NotFound:
            await self._forget(key)
            return None
        if "deletionTimestamp" in found["metadata"]:
            return RESYNC_SECONDS  # garbage collection does the rest
        now = self.clock()
        try:
            spec = parse(found)
        except InvalidSpec as error:
            return await self._report_invalid(found, error, memory, now)
        state = state_from_status(found.get("status"))
        observed = await self._observer.observe(found, spec, state, memory, now)
        move = decide(spec, observed, now=now)
        status = _status(found, spec, observed, move, now)
        if move.transition and await self._write_status(found, status, memory):
            await self._report(key, memory, observed, move.state)
            return 0.0
        wake = self.wake
        applier = Applier(
            self.client, self.http, self._smoke, memory, spec, observed, lambda: wake(key)
        )
        await applier.apply(plan(spec, observed, now=now))
        await self._write_status(found, status, memory)
        await self._report(key, memory, observed, move.state)
        return self._next_look(move, memory)

    async def _write_status(self, found: Object, status: Object, memory: Memory) -> bool:
        """Whether the status differed and is written now; guarded by the resourceVersion that was read."""
        current = found.get("status") or {}
        patch = merge_diff(current, status)
        if not patch or memory.written == (status, current):
            # The second: the API server keeps something else than what we write, and writing again is no cure.
            memory.windows.stored()
            return False
        metadata = found["metadata"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": patch}
        try:
            answer = await self.client.merge_patch(
                INFERENCE_DEPLOYMENTS,
                metadata["namespace"],
                metadata["name"],
                body,
                subresource="status",
            )
        except Conflict:
            raise  # surely not stored: the offered windows come again
        except ApiError:
            memory.windows.stored()  # maybe stored: losing a window is better than counting it twice
            raise
        memory.windows.stored()
        stored = answer.get("status") or {}
        memory.written = (status, stored)
        lost = paths(merge_diff(stored, status))
        if lost and lost != memory.lost:
            log.error(
                "status was not stored as written; is the CRD older than the operator?",
                fields=lost,
            )
        memory.lost = lost
        return True

    async def _report(self, key: Key, memory: Memory, observed: Observed, state: State) -> None:
        """Events and metrics of what is stored now."""
        self._measure(key, observed.state, state)
        for decision in state.decisions:
            name = event_name(observed, decision)
            if name in memory.posted or decision.at < self.clock() - RECENT:
                continue
            try:
                await self.client.create(EVENTS, key.namespace, event_from(observed, decision))
            except Conflict:
                pass  # posted before a restart
            except ApiError as error:
                log.warning("event not posted", key=str(key), error=str(error))
                continue
            memory.posted.add(name)
            log.info(
                "decision",
                key=str(key),
                reason=decision.reason,
                revision=decision.revision,
                message=decision.message,
            )
        memory.posted &= {event_name(observed, decision) for decision in state.decisions}

    def _measure(self, key: Key, before: State, after: State) -> None:
        for decision in after.decisions:
            if decision not in before.decisions:
                self.telemetry.decisions.labels(decision.reason).inc()
        for entry in after.history:
            if entry not in before.history:
                took = (entry.ended_at - entry.started_at).total_seconds()
                self.telemetry.rollout_ended(entry.outcome.value, took)
        rollout = after.rollout
        if rollout is None:
            self.telemetry.no_rollout(key.namespace, key.name)
            return
        self.telemetry.rollout_seen(
            key.namespace,
            key.name,
            step=rollout.step_index,
            weight=rollout.verified_weight,
            verdicts={record.objective: record.verdict.value for record in rollout.verdicts},
        )

    async def _report_invalid(
        self, found: Object, error: InvalidSpec, memory: Memory, now: datetime
    ) -> float:
        """Say what is wrong with the spec; nothing is made and nothing that serves is touched."""
        status = invalid_status(
            error.faults,
            generation=int(found["metadata"].get("generation", 0)),
            now=now,
            previous=found.get("status"),
        )
        await self._write_status(found, status, memory)
        return self._spread(RESYNC_SECONDS)

    async def _report_refusal(self, key: Key, error: Refused) -> None:
        """Say in the condition Stalled that the API server refuses what is to be done."""
        found = await self.client.get(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
        status = found.get("status") or {}
        wanted = {**status, "conditions": _stalled(found, error, self.clock())}
        if patch := merge_diff(status, wanted):
            body = {
                "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
                "status": patch,
            }
            await self.client.merge_patch(
                INFERENCE_DEPLOYMENTS, key.namespace, key.name, body, subresource="status"
            )

    async def _forget(self, key: Key) -> None:
        memory = self._memories.pop(key, None)
        if memory is not None:
            self._smoke.keep_only(set(), memory.pod_uids)
            await memory.close()
        self.telemetry.no_rollout(key.namespace, key.name)

    def _next_look(self, move: Move, memory: Memory) -> float:
        seconds = move.requeue_after.total_seconds()
        if seconds >= RESYNC_SECONDS / 2:
            seconds = self._spread(seconds)
        if memory.windows.next_at is not None and move.state.rollout is not None:
            # From now, not from the begin of this look: else every window would be a look longer.
            due = (memory.windows.next_at - self.clock()) / timedelta(seconds=1)
            seconds = min(seconds, max(0.0, due))
        return seconds

    def _spread(self, seconds: float) -> float:
        return seconds * (1 + RESYNC_SPREAD * (2 * self.jitter() - 1))


def _status(found: Object, spec: Spec, observed: Observed, move: Move, now: datetime) -> Object:
    return status_from_state(
        spec,
        observed,
        move.state,
        now=now,
        waiting_for=move.waiting_for,
        previous=found.get("status"),
    )


def _stalled(found: Mapping[str, Any], error: Refused, now: datetime) -> list[Object]:
    """The conditions with Stalled=True for this refusal; the next look that succeeds takes it back."""
    old: list[Object] = (found.get("status") or {}).get("conditions") or []
    before = next((c for c in old if c.get("type") == "Stalled"), {})
    since = before.get("lastTransitionTime") if before.get("status") == "True" else None
    stalled = {
        "type": "Stalled",
        "status": "True",
        "reason": "Refused",
        "message": f"the API server refuses a request of the operator: {str(error)[:600]}",
        "lastTransitionTime": since or now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "observedGeneration": int(found["metadata"].get("generation", 0)),
    }
    others = [c for c in old if c.get("type") != "Stalled"]
    return sorted([*others, stalled], key=lambda c: str(c["type"]))
