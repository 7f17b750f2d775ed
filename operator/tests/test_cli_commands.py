from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from api_server import ApiServer, Fault

from rampway_operator.cli import session as session_module
from rampway_operator.cli.app import main
from rampway_operator.cli.outcome import outcome_of

HASH = "aaaaaaaaaa"


def condition(kind: str, status: str, reason: str, *, generation: int = 2) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": f"{reason} it is",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-30T12:00:00Z",
    }


CHAT: dict[str, Any] = {
    "metadata": {"name": "chat", "namespace": "prod", "generation": 2},
    "spec": {"engine": {"image": "e:2"}, "strategy": {"canary": {}}},
    "status": {
        "observedGeneration": 2,
        "phase": "Analyzing",
        "reason": "RolloutInProgress",
        "waitingFor": "656 of 1,312 requests",
        "replicas": 4,
        "readyReplicas": 3,
        "stableRevision": {
            "hash": "bbbbbbbbbb",
            "number": 3,
            "image": "registry.example/llm@sha256:" + "0" * 64,
        },
        "candidateRevision": {"hash": HASH, "number": 4, "image": "e:2", "attempt": 1},
        "rollout": {
            "step": {"index": 4, "total": 8, "display": "5/8 analysis", "type": "analysis"},
            "weight": {"desired": 25, "verified": 25, "note": "asked 20 %, 1 of 4 pods = 25 %"},
            "pods": {"candidate": 1, "candidateReady": 1, "baseline": 1, "baselineReady": 0},
            "cache": {"state": "Steady", "candidateHitRate": "0.61", "baselineHitRate": "0.63"},
            "verdicts": [
                {"objective": "hit-rate", "verdict": "Pass", "message": "0.61 vs 0.63"},
                {"objective": "[red]ttft[/red]", "verdict": "Undecided", "message": "no data"},
            ],
        },
        "conditions": [
            condition("Ready", "False", "TooFewPods"),
            condition("Stalled", "False", "NotStalled"),
            condition("RolloutComplete", "False", "InProgress"),
        ],
        "decisions": [
            {
                "at": "2026-11-30T12:00:00.123456Z",
                "reason": "RolloutStarted",
                "message": "m",
                "revision": HASH,
            }
        ],
        "history": [
            {
                "number": 2,
                "hash": "cccccccccc",
                "image": "e:0",
                "outcome": "AnalysisFailed",
                "message": "hit rate fell",
                "startedAt": "2026-11-30T11:00:00Z",
                "endedAt": "2026-11-30T11:10:00Z",
            }
        ],
    },
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer(tmp_path) as started:
        started.put("inferencedeployments", CHAT)
        yield started


async def run(server: ApiServer, *arguments: str) -> int:
    """The exit code, of a process's main thread so to say."""
    return await asyncio.to_thread(main, [*arguments, "--kubeconfig", str(server.kubeconfig)])


def change(server: ApiServer, **status: Any) -> None:
    found = server.get("inferencedeployments", "chat")
    assert found is not None
    changed = copy.deepcopy(found)
    changed["status"] |= status
    server.put("inferencedeployments", changed)


async def answer_command(server: ApiServer, result: str) -> str:
    """What the operator does with a command: records the result under its id."""
    while True:
        found = server.get("inferencedeployments", "chat")
        assert found is not None
        if text := (found["metadata"].get("annotations") or {}).get("rampway.dev/command"):
            change(server, lastCommand={"id": text, "result": result})
            return str(text)
        await asyncio.sleep(0.01)


async def test_given_a_rollout_when_asked_for_its_status_then_all_its_numbers_are_shown(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "status", "chat") == 0
    told = capsys.readouterr().out
    for part in (
        "prod/chat",
        "Analyzing",
        "656 of 1,312 requests",
        "#3 bbbbbbbbbb",
        f"#4 {HASH}",
        "75 %",
        "25 %",
        "asked 20 %, 1 of 4 pods = 25 %",
        "5/8 analysis",
        "0.61 vs 0.63",
        "[red]ttft[/red]",
        "Ready=False TooFewPods: TooFewPods it is",
        "2026-11-30T12:00:00Z",
    ):
        assert part in told, part
    assert "NotStalled" not in told


async def test_given_json_asked_for_when_shown_then_it_is_the_stored_status(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "status", "chat", "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["status"] == CHAT["status"]
    assert (shown["name"], shown["namespace"]) == ("chat", "prod")


async def test_given_an_object_the_operator_never_saw_when_shown_then_it_says_so(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.put("inferencedeployments", {"metadata": {"name": "new"}, "spec": {}})
    assert await run(server, "status", "new") == 0
    assert "not seen by the operator yet" in capsys.readouterr().out
    assert await run(server, "history", "new") == 0
    assert "none yet" in capsys.readouterr().out


async def test_given_ended_rollouts_when_asked_for_history_then_each_says_why(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "history", "chat") == 0
    told = capsys.readouterr().out
    assert "#2 cccccccccc" in told
    assert "AnalysisFailed" in told
    assert "hit rate fell" in told


@pytest.mark.parametrize("verb", ["promote", "promote-full", "abort"])
async def test_given_a_rollout_when_commanded_then_the_annotation_names_what_its_giver_saw(
    server: ApiServer, verb: str
) -> None:
    command, code = await asyncio.gather(
        answer_command(server, "Applied"), run(server, verb, "chat")
    )
    assert code == 0
    assert re.fullmatch(rf"{verb}/{HASH}/4#[0-9a-f]{{8}}", command)
    assert len(server.writes()) == 1


async def test_given_a_command_that_is_stale_when_answered_then_exit_3_and_the_reason(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = "Stale: the rollout is at step 5"
    _, code = await asyncio.gather(answer_command(server, stale), run(server, "promote", "chat"))
    assert code == 3
    assert stale in capsys.readouterr().err


async def test_given_no_operator_when_commanded_then_exit_3_and_a_hint(
    server: ApiServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "ANSWER_SECONDS", 0.2)
    assert await run(server, "abort", "chat") == 3
    assert "has not taken the command" in capsys.readouterr().err


async def test_given_no_rollout_when_aborted_then_nothing_is_written(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    change(server, phase="Idle", rollout=None, candidateRevision=None)
    assert await run(server, "abort", "chat") == 3
    assert "nothing to abort: chat has no rollout under way (phase Idle)" in capsys.readouterr().err
    assert server.writes() == []


async def test_given_pause_and_resume_when_repeated_then_only_changes_are_written(
    server: ApiServer,
) -> None:
    for verb in ("pause", "pause", "resume", "resume"):
        assert await run(server, verb, "chat") == 0
    assert len(server.writes()) == 2
    found = server.get("inferencedeployments", "chat")
    assert found is not None
    assert found["spec"]["paused"] is False


@pytest.mark.parametrize(("reason", "code"), [("Promoted", 0), ("RolledBack", 1)])
async def test_given_a_rollout_that_ends_when_waited_for_then_the_exit_code_says_how(
    server: ApiServer, reason: str, code: int
) -> None:
    async def end() -> None:
        while len(server.requests) < 2:  # noqa: ASYNC110 the server is not ours to signal
            await asyncio.sleep(0.01)
        change(server, conditions=[condition("RolloutComplete", "True", reason)])

    waited, _ = await asyncio.gather(run(server, "wait", "chat", "--timeout", "20s"), end())
    assert waited == code


async def test_given_a_rollout_that_goes_on_when_waited_for_too_long_then_exit_2(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "wait", "chat", "--timeout", "0s") == 2
    assert "timed out after 0s: Analyzing" in capsys.readouterr().err


def test_given_conditions_of_an_older_spec_when_judged_then_the_rollout_has_not_ended() -> None:
    old = copy.deepcopy(CHAT)
    old["status"]["conditions"] = [condition("RolloutComplete", "True", "Promoted", generation=1)]
    assert outcome_of(old) is None
    old["status"]["observedGeneration"] = 1
    assert outcome_of(old) is None
    assert outcome_of({}) is None


def test_given_an_invalid_spec_when_judged_then_it_will_never_be_promoted() -> None:
    invalid = copy.deepcopy(CHAT)
    invalid["status"]["conditions"] = [condition("SpecValid", "False", "InvalidSpec")]
    ended = outcome_of(invalid)
    assert ended is not None
    assert ended.code == 1


async def test_given_a_wrong_name_when_asked_then_the_right_ones_are_named(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(server, "status", "chatt") == 3
    assert (
        "InferenceDeployment chatt not found in namespace prod; there are: chat"
        in capsys.readouterr().err
    )
    assert await run(server, "status", "chat", "-n", "empty") == 3
    assert "there is none in this namespace (see -n)" in capsys.readouterr().err


async def test_given_a_cluster_without_rampway_when_asked_then_it_says_so(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.served = False
    assert await run(server, "status", "chat") == 3
    assert "has no InferenceDeployment API; install Rampway" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["status", "pause", "abort"])
async def test_given_no_permission_when_asked_then_it_says_what_is_not_allowed(
    server: ApiServer, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults = [Fault(403, "get" if verb == "status" else "patch", times=9)]
    assert await run(server, verb, "chat") == 3
    assert capsys.readouterr().err.startswith("kubectl rampway: not allowed: ")


async def test_given_credentials_that_ran_out_when_asked_then_it_says_so(
    server: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.token = "another"
    assert await run(server, "status", "chat") == 3
    assert "does not accept these credentials" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["fly", "chat"],
        ["status", "chat", "-o", "yaml"],
        ["wait", "chat", "--timeout", "soon"],
        ["wait", "chat", "--timeout", ""],
        ["status", "chat", "--nope"],
        ["status", "a", "b"],
    ],
)
def test_given_wrong_usage_when_run_then_exit_64_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 64
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("kubectl rampway: ")


def test_given_help_asked_for_when_run_then_exit_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "promote-full" in capsys.readouterr().out
