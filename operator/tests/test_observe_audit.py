from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog
from virtual_time import run

from rampway_operator.cluster.audit import WatchAudit
from rampway_operator.errors import Unavailable
from rampway_operator.queue import Key

A, B = Key("prod", "a"), Key("prod", "b")


@pytest.fixture(autouse=True)
def _silent_log() -> None:
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())


class Listing:
    """What a list of InferenceDeployments shows."""

    def __init__(self, **versions: str) -> None:
        self.versions = versions
        self.down = False

    async def list_objects(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        if self.down:
            raise Unavailable("down", status=503)
        return [
            {"metadata": {"namespace": "prod", "name": name, "resourceVersion": version}}
            for name, version in self.versions.items()
        ]


def audit_of(listing: Listing, resynced: list[Key]) -> WatchAudit:
    return WatchAudit(listing, ("prod",), resynced.append)  # type: ignore[arg-type]


def test_given_watches_that_tell_all_when_audited_then_nothing_is_wrong() -> None:
    async def scenario() -> tuple[str, list[Key]]:
        listing, resynced = Listing(a="1"), []
        audit = audit_of(listing, resynced)
        for version in range(10):
            listing.versions["a"] = str(version)
            audit.seen(A, str(version))
            await asyncio.sleep(60)
            await audit.look()
        return audit.fault, resynced

    assert run(scenario()) == ("", [])


def test_given_watches_that_went_silent_when_audited_twice_then_keys_are_resynced_and_then_it_is_a_fault() -> (
    None
):
    async def scenario() -> tuple[list[str], list[Key]]:
        listing, resynced = Listing(a="1", b="1"), []
        audit = audit_of(listing, resynced)
        audit.seen(A, "1")
        audit.seen(B, "1")
        faults = []
        for _ in range(4):
            await audit.look()
            faults.append(audit.fault)
            listing.versions["a"] = "2"
            await asyncio.sleep(60)
        return faults, resynced

    faults, resynced = run(scenario())
    assert faults[:3] == ["", "", ""]
    assert "no event for 1 changed objects" in faults[3]
    assert resynced == [A, A]


def test_given_an_event_that_comes_late_when_audited_then_it_is_no_fault() -> None:
    async def scenario() -> str:
        listing = Listing(a="1")
        audit = audit_of(listing, [])
        await audit.look()
        await asyncio.sleep(30)
        audit.seen(A, "1")
        await asyncio.sleep(30)
        await audit.look()
        await asyncio.sleep(60)
        await audit.look()
        return audit.fault

    assert run(scenario()) == ""


def test_given_an_object_that_changes_all_the_time_when_newer_events_come_then_it_is_no_fault() -> (
    None
):
    async def scenario() -> str:
        listing = Listing(a="1")
        audit = audit_of(listing, [])
        for version in range(10):
            listing.versions["a"] = str(version)
            await audit.look()
            await asyncio.sleep(1)
            audit.seen(A, str(version + 1000))  # a version that no list ever showed
            await asyncio.sleep(59)
        return audit.fault

    assert run(scenario()) == ""


def test_given_a_deleted_object_when_audited_then_it_is_forgotten() -> None:
    async def scenario() -> tuple[str, list[Key]]:
        listing, resynced = Listing(a="1"), []
        audit = audit_of(listing, resynced)
        audit.seen(A, "1")
        await audit.look()
        listing.versions.clear()
        for _ in range(3):
            await asyncio.sleep(60)
            await audit.look()
        return audit.fault, resynced

    assert run(scenario()) == ("", [])


def test_given_an_api_server_that_is_down_when_audited_then_neither_liveness_nor_trust_falls() -> (
    None
):
    async def scenario() -> tuple[str, str]:
        listing = Listing(a="1")
        audit = audit_of(listing, [])
        task = asyncio.create_task(audit.watch())
        await asyncio.sleep(1)  # listed, and its event is lost in the outage
        listing.down = True
        await asyncio.sleep(600)
        during = audit.too_old() + audit.fault
        listing.down = False
        audit.seen(A, "1")
        await asyncio.sleep(600)
        result = during, audit.too_old() + audit.fault
        task.cancel()
        return result

    assert run(scenario()) == ("", "")


def test_given_an_audit_that_hangs_when_asked_then_liveness_falls_after_minutes() -> None:
    async def scenario() -> tuple[str, str]:
        audit = audit_of(Listing(a="1"), [])
        await audit.look()
        await asyncio.sleep(170)
        early = audit.too_old()
        await asyncio.sleep(20)
        return early, audit.too_old()

    assert run(scenario()) == ("", "last watch audit was 190 s ago")


def test_given_a_start_when_not_every_object_was_seen_then_it_is_not_ready() -> None:
    async def scenario() -> list[str]:
        audit = audit_of(Listing(a="1", b="1"), [])
        told = [audit.not_synced()]
        await audit.look()
        audit.seen(A, "1")
        told.append(audit.not_synced())
        audit.seen(B, "1")
        told.append(audit.not_synced())
        return told

    assert run(scenario()) == [
        "objects have not been listed yet",
        "1 objects have not been seen by the watches",
        "",
    ]
