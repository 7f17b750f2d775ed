"""`kubectl rampway preflight` shows what check_env found, node by node and check by check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer

from rampway_operator.cli.app import main

STATUS: dict[str, Any] = {
    "stableRevision": {"hash": "bbbbbbbbbb"},
    "history": [{"hash": "cccccccccc", "outcome": "BadNodes"}],
}
GOOD = {"v": 1, "class": "Pass", "failed": [], "checks": [["glibcxx", "pass", "3.4.32"], ["gpu", "pass", "8"], ["xid", "skip", ""]]}  # fmt: skip
BAD = {
    "v": 1,
    "class": "BadNode",
    "failed": [{"check": "gpu", "found": "7 of 8 GPUs visible", "required": "8 or more", "remedy": "repair it"}],
    "checks": [["glibcxx", "pass", "3.4.32"], ["gpu", "fail", "7 of 8 GPUs visible"], ["xid", "skip", ""]],
}  # fmt: skip


def entry(report: Any, code: int) -> str:
    return json.dumps({"pod": "chat-x", "at": "", "exitCode": code, "report": report})


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path) as started:
        started.put("inferencedeployments", {"metadata": {"name": "chat"}, "status": STATUS})
        data = {"gpu-1": entry(GOOD, 0), "gpu-2": entry(BAD, 11), "gpu-3": entry("Killed", 137)}
        data["gpu-4"] = entry(GOOD | {"unchecked": ["torch"]}, 0)
        started.put("configmaps", {"metadata": {"name": "chat-cccccccccc.report"}, "data": data})
        yield started


async def run(server: ApiServer, *arguments: str) -> int:
    command = ["preflight", *arguments, "--kubeconfig", str(server.kubeconfig)]
    return await asyncio.to_thread(main, command)


async def test_given_reports_when_shown_then_there_is_a_row_a_node_and_each_failure_has_its_remedy(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "chat") == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "revision cccccccccc, 4 nodes checked"
    assert [line.split() for line in lines[1:6]] == [
        ["node", "class", "glibcxx", "gpu", "xid"],
        ["gpu-1", "Pass", "pass", "pass", "-"],
        ["gpu-2", "BadNode", "pass", "FAIL", "-"],
        ["gpu-3", "exit", "137", "-", "-", "-"],
        ["gpu-4", "Pass", "pass", "pass", "-"],
    ]
    told = "\n".join(lines[6:])
    assert "gpu-2  gpu: found 7 of 8 GPUs visible, need 8 or more\n  remedy: repair it" in told
    assert "gpu-3  exit code 137: Killed" in told
    assert "not checked, because the check runs in preflight.image: torch" in told


async def test_given_json_asked_for_when_shown_then_it_is_what_is_stored(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "chat", "-o", "json") == 0

    shown = json.loads(capsys.readouterr().out)
    assert shown["revision"] == "cccccccccc"
    assert shown["nodes"]["gpu-2"]["report"] == BAD


async def test_given_a_revision_without_report_when_asked_for_then_exit_3_and_why(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "chat", "--revision", "dddddddddd") == 3
    assert "no check report of revision dddddddddd of chat" in capsys.readouterr().err
