"""`kubectl rampway analysis`: recordings, the judgement on them, the A/A test and the plot."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from aiohttp import web
from analysis_builders import ERRORS, HIT_RATE, START, TAIL, after, arm, spec
from metric_payloads import as_matrix, lines

from rampway_operator.cli.app import main
from rampway_operator.cluster.prometheus import Prometheus
from rampway_operator.cluster.recorder import record
from rampway_operator.core.observed import Arm
from rampway_operator.core.offline import judge, self_test
from rampway_operator.core.recording import (
    PodWindow,
    RecordingInvalid,
    as_lines,
    as_window,
    from_lines,
)
from rampway_operator.core.spec import EngineType
from rampway_operator.core.state import Verdict
from rampway_operator.settings import PrometheusSettings

LENGTH = timedelta(seconds=15)


def recorded(
    windows: int, *, slower: float = 1.0, arms: Sequence[Arm] = (Arm.CANDIDATE, Arm.STABLE)
) -> list[PodWindow]:
    """Pods p0, p1, ... of these arms with log-normal latencies; the candidates' are `slower`."""
    rng = random.Random(7)

    def latencies(part: Arm) -> list[float]:
        factor = slower if part is Arm.CANDIDATE else 1.0
        return [factor * rng.lognormvariate(-1.5, 0.5) for _ in range(60)]

    return [
        PodWindow(
            START + i * LENGTH,
            START + (i + 1) * LENGTH,
            {
                f"p{n}": arm(requests=60, errors=0, latencies=latencies(part))
                for n, part in enumerate(arms)
            },
            {f"p{n}": part for n, part in enumerate(arms)},
        )
        for i in range(windows)
    ]


def written(tmp_path: Path, windows: Sequence[PodWindow]) -> Path:
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(f"{line}\n" for line in as_lines(windows)), encoding="utf-8")
    return path


def test_given_a_recording_when_read_back_then_its_windows_are_the_same() -> None:
    windows = tuple(recorded(3))
    assert from_lines(as_lines(windows)) == windows


def test_given_two_pods_of_an_arm_then_its_window_is_their_sum() -> None:
    [window] = recorded(1, arms=(Arm.CANDIDATE, Arm.STABLE, Arm.STABLE))
    summed = as_window(window)
    assert summed is not None
    assert summed.stable is not None
    assert (summed.stable.pods, summed.stable.requests) == (2, 120)
    assert summed.stable.ttft is not None
    assert summed.stable.ttft.total == 120


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "[]",
        "null",
        '{"rampwayRecording": 2, "edges": {}}',
        '{"rampwayRecording": 1, "edges": {"ttft": ["a"]}}',
        '{"rampwayRecording": 1, "edges": {}}\n{"start": 1}',
        '{"rampwayRecording": 1, "edges": {}}\n{"start": 1, "end": 2, "pods": {"a": {"arm": "x"}}}',
        '{"rampwayRecording": 1, "edges": {}}\n{"start": 1, "end": 2, "pods": {"a": {"arm": "stable", "requests": -1}}}',
        '{"rampwayRecording": 1, "edges": {"ttft": [1]}}\n{"start": 1, "end": 2, "pods": {"a": {"arm": "stable", "requests": 1, "ttft": [1]}}}',
    ],
)
def test_given_a_bad_recording_then_its_line_is_named(bad: str) -> None:
    with pytest.raises(RecordingInvalid, match=r"line [12] of|no windows"):
        from_lines(bad.splitlines())


def test_given_the_same_windows_then_offline_and_operator_say_the_same_word_for_word() -> None:
    wanted = spec(TAIL, HIT_RATE, ERRORS)
    windows = [w for item in recorded(30, slower=1.6) if (w := as_window(item)) is not None]
    offline = judge(wanted, windows, stop=False)
    _, online = after(wanted, windows, weight=50)
    assert offline.verdicts == online.verdicts
    assert offline.outcome is online.outcome is Verdict.FAIL


def test_given_equal_pods_then_the_self_test_aborts_none_of_them() -> None:
    found = self_test(
        spec(TAIL), recorded(60, arms=(Arm.STABLE,) * 4), ["p0", "p1", "p2", "p3"],
        repetitions=12, seed=1,
    )  # fmt: skip
    assert (found.aborted, found.repetitions) == (0, 12)
    assert found.promoted > 0
    assert 0.0 < found.aborted_at_most < 0.3


def test_given_pods_that_are_not_equal_then_the_self_test_finds_it() -> None:
    arms = (Arm.CANDIDATE, Arm.STABLE)
    found = self_test(
        spec(TAIL), recorded(60, slower=3.0, arms=arms), ["p0", "p1"], repetitions=12, seed=1
    )
    assert found.aborted > 2


def test_given_a_slow_candidate_when_judged_then_exit_1_and_a_plot_with_margin_and_both_arms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, html = written(tmp_path, recorded(60, slower=1.8)), tmp_path / "out.html"
    code = main(["analysis", "judge", str(path), "--html", str(html)])
    told = capsys.readouterr().out
    assert code == 1
    assert "Fail after" in told
    text = html.read_text(encoding="utf-8")
    charts = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(charts) >= 3
    for chart in charts:
        ET.fromstring(chart)
    assert "stroke-dasharray" in text
    assert "● reference" in text


def test_given_equal_builds_when_judged_then_exit_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analysis", "judge", str(written(tmp_path, recorded(120)))]) == 0
    assert "Pass after" in capsys.readouterr().out


def test_given_a_few_windows_when_judged_then_exit_2(tmp_path: Path) -> None:
    assert main(["analysis", "judge", str(written(tmp_path, recorded(3)))]) == 2


def test_given_the_self_test_command_then_the_realised_rate_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, recorded(20, arms=(Arm.STABLE,) * 2))
    assert main(["analysis", "self-test", str(path), "--repetitions", "5"]) == 0
    assert "5 rollouts of equal builds: aborted 0.0 %" in capsys.readouterr().out
    assert main(["analysis", "self-test", str(path), "--repetitions", "5", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["promised"] == 0.05


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("judge", "missing.jsonl"), "missing.jsonl"),
        (("self-test", "{recording}", "--arm", "baseline"), "got 0 pods, need 2 or more"),
        (("judge", "{recording}", "-f", "{recording}"), "recording.jsonl: expected"),
        (("judge", "{recording}", "-f", "{folder}/list.yaml"), "need one InferenceDeployment"),
        (("record", "--prometheus", "http://127.0.0.1:9", "-n", "a", "-o", "x"), "pods: got none"),
    ],
)
def test_given_what_cannot_be_used_then_exit_3_and_it_is_said(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, recorded(2))
    (tmp_path / "list.yaml").write_text("[]")
    words = tuple(word.format(recording=path, folder=tmp_path) for word in words)
    assert main(["analysis", *words]) == 3
    assert said in capsys.readouterr().err


async def test_given_a_prometheus_with_a_past_when_recorded_then_windows_have_what_pods_served() -> (
    None
):
    end = datetime(2030, 1, 1, tzinfo=UTC)

    async def answer(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        at = float(str(form["time"]))
        result: dict[str, dict[str, object]] = {}
        for reading in range(200):
            scraped = end.timestamp() + (reading - 150) * 15.0 - 2.0
            if not at - 900.0 < scraped <= at:
                continue
            for item in as_matrix(lines(reading), "c", scraped)["data"]["result"]:
                key = json.dumps(item["metric"], sort_keys=True)
                result.setdefault(key, {"metric": item["metric"], "values": []})
                result[key]["values"] += item["values"]  # type: ignore[operator]
        merged = {
            "status": "success",
            "data": {"resultType": "matrix", "result": [*result.values()]},
        }
        return web.json_response(merged)

    app = web.Application()
    app.router.add_post("/api/v1/query", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    source = Prometheus(PrometheusSettings("a", f"http://127.0.0.1:{runner.addresses[0][1]}"))
    windows = await record(
        source, EngineType.RAMPWAY, "prod", {"c": Arm.CANDIDATE},
        end=end, length=timedelta(minutes=25), interval=LENGTH,
    )  # fmt: skip
    await source.close()
    await runner.cleanup()
    assert len(windows) == 100
    assert {window.pods["c"].requests for window in windows} == {40.0}
