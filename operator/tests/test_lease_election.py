from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
import structlog
from virtual_time import run

from rampway_operator.cluster.lease import Election
from rampway_operator.errors import ApiError, Conflict, NotFound, Unavailable


@pytest.fixture(autouse=True)
def _silent_log() -> None:
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())


class LeaseStore:
    """One Lease behind the API server's rules: resourceVersion is a precondition, names are unique."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.fault: ApiError | None = None
        self.commit_then_fail = False
        self.stall = 0.0
        self.answer_delay = 0.0
        """Seconds between a write that is stored and its answer."""

    async def get(self, _resource: Any, _namespace: str, _name: str) -> dict[str, Any]:
        await self._before()
        if self.lease is None:
            raise NotFound("no lease", status=404)
        return copy.deepcopy(self.lease)

    async def create(self, _resource: Any, _namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._before()
        if self.lease is not None:
            raise Conflict("exists", status=409)
        return await self._answer(self._store(copy.deepcopy(body)))

    async def merge_patch(
        self, _resource: Any, _namespace: str, _name: str, body: dict[str, Any]
    ) -> dict[str, Any]:
        await self._before()
        assert self.lease is not None
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict("stale", status=409)
        merged = {**self.lease, "spec": {**self.lease["spec"], **body["spec"]}}
        return await self._answer(self._store(merged))

    async def _before(self) -> None:
        await asyncio.sleep(self.stall)
        if self.fault is not None:
            raise self.fault

    async def _answer(self, stored: dict[str, Any]) -> dict[str, Any]:
        if self.answer_delay:
            await asyncio.sleep(self.answer_delay)
        return stored

    def _store(self, lease: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        lease["metadata"]["resourceVersion"] = str(self.version)
        self.lease = lease
        if self.commit_then_fail:
            self.commit_then_fail = False
            raise Unavailable("answer lost")
        return copy.deepcopy(lease)

    @property
    def holder(self) -> str:
        assert self.lease is not None
        return str(self.lease["spec"]["holderIdentity"])


def election(store: LeaseStore, identity: str) -> Election:
    return Election(store, "prod", "rampway-operator", identity)  # type: ignore[arg-type]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_given_no_lease_when_acquiring_then_this_process_leads_at_once() -> None:
    async def scenario() -> tuple[str, float]:
        store = LeaseStore()
        await election(store, "a").acquire()
        return store.holder, now()

    assert run(scenario()) == ("a", 1000.0)


def test_given_a_live_leader_when_another_waits_then_it_never_takes_over() -> None:
    async def scenario() -> bool:
        store = LeaseStore()
        first, second = election(store, "a"), election(store, "b")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(3600)
        result = waiting.done() or keeping.done() or store.holder != "a"
        keeping.cancel()
        waiting.cancel()
        return result

    assert run(scenario()) is False


def test_given_a_killed_leader_when_its_lease_runs_out_then_another_leads_within_20_seconds() -> (
    None
):
    async def scenario() -> tuple[str, float, int]:
        store = LeaseStore()
        first, second = election(store, "a"), election(store, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(0.5)  # `a` is killed here: it never renews
        await waiting
        assert store.lease is not None
        return store.holder, now() - 1000.0, store.lease["spec"]["leaseTransitions"]

    holder, seconds, transitions = run(scenario())
    assert holder == "b"
    assert 15.0 < seconds <= 20.0
    assert transitions == 2


def test_given_a_leader_that_stops_when_it_releases_then_another_leads_within_3_seconds() -> None:
    async def scenario() -> tuple[str, float]:
        store = LeaseStore()
        first, second = election(store, "a"), election(store, "b")
        await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(1)
        await first.release()
        released = now()
        await waiting
        return store.holder, now() - released

    holder, seconds = run(scenario())
    assert holder == "b"
    assert seconds <= 3.0


def test_given_a_renewal_cut_off_by_the_stop_when_releasing_then_another_leads_within_3_seconds() -> (
    None
):
    async def scenario() -> tuple[str, float]:
        store = LeaseStore()
        first, second = election(store, "a"), election(store, "b")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        waiting = asyncio.create_task(second.acquire())
        store.answer_delay = 0.5
        await asyncio.sleep(2.25)  # the renewal of second 2 is accepted, its answer on the way
        keeping.cancel()
        store.answer_delay = 0.0
        await first.release()
        released = now()
        await waiting
        return store.holder, now() - released

    holder, seconds = run(scenario())
    assert holder == "b"
    assert seconds <= 3.0


def test_given_a_claim_cut_off_by_the_stop_when_releasing_then_another_leads_within_3_seconds() -> (
    None
):
    async def scenario() -> tuple[str, float]:
        store = LeaseStore()
        store.answer_delay = 0.5
        first, second = election(store, "a"), election(store, "b")
        claiming = asyncio.create_task(first.acquire())
        await asyncio.sleep(0.25)
        claiming.cancel()
        assert store.holder == "a"
        store.answer_delay = 0.0
        waiting = asyncio.create_task(second.acquire())
        await first.release()
        released = now()
        await waiting
        return store.holder, now() - released

    holder, seconds = run(scenario())
    assert holder == "b"
    assert seconds <= 3.0


def test_given_a_lease_of_another_when_a_waiting_process_stops_then_it_is_left_alone() -> None:
    async def scenario() -> tuple[str, int]:
        store = LeaseStore()
        await election(store, "a").acquire()
        await election(store, "b").release()
        return store.holder, store.version

    assert run(scenario()) == ("a", 1)


def test_given_an_api_server_that_is_down_when_releasing_then_the_stop_goes_on() -> None:
    async def scenario() -> tuple[str, bool]:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        store.fault = Unavailable("down", status=503)
        await first.release()
        return store.holder, first.leading

    assert run(scenario()) == ("a", False)


def test_given_an_api_server_that_is_down_when_not_renewed_for_10_seconds_then_the_lease_is_lost() -> (
    None
):
    async def scenario() -> float:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(60)
        store.fault = Unavailable("down", status=503)
        since = now()
        await keeping
        assert not first.leading
        return now() - since

    assert 8.0 <= run(scenario()) < 15.0


def test_given_a_stalled_api_server_when_requests_hang_then_the_lease_is_lost_before_it_runs_out() -> (
    None
):
    async def scenario() -> float:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(60)
        store.stall = 3600.0
        since = now()
        await keeping
        return now() - since

    assert run(scenario()) < 15.0


def test_given_a_short_outage_when_it_ends_then_the_leader_stays() -> None:
    async def scenario() -> bool:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(60)
        store.fault = Unavailable("down", status=503)
        await asyncio.sleep(7)
        store.fault = None
        await asyncio.sleep(60)
        result = first.leading and not keeping.done()
        keeping.cancel()
        return result

    assert run(scenario()) is True


def test_given_a_renewal_whose_answer_is_lost_when_renewing_again_then_the_leader_stays() -> None:
    async def scenario() -> bool:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(60)
        store.commit_then_fail = True
        await asyncio.sleep(60)
        result = first.leading and not keeping.done() and store.holder == "a"
        keeping.cancel()
        return result

    assert run(scenario()) is True


def test_given_someone_who_took_the_lease_when_the_old_leader_renews_then_it_gives_up() -> None:
    async def scenario() -> tuple[bool, str]:
        store = LeaseStore()
        first = election(store, "a")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        await asyncio.sleep(60)
        assert store.lease is not None
        stolen = copy.deepcopy(store.lease)
        stolen["spec"]["holderIdentity"] = "thief"
        store._store(stolen)
        await keeping
        return first.leading, store.holder

    assert run(scenario()) == (False, "thief")


def test_given_two_that_start_together_when_the_lease_is_free_then_exactly_one_leads() -> None:
    async def scenario() -> int:
        store = LeaseStore()
        store.stall = 0.1
        rivals = [election(store, name) for name in "abcde"]
        tasks = [asyncio.create_task(rival.acquire()) for rival in rivals]
        await asyncio.sleep(5)
        leaders = sum(rival.leading for rival in rivals)
        for task in tasks:
            task.cancel()
        return leaders

    assert run(scenario()) == 1
