from __future__ import annotations

import json
import logging

import pytest
import structlog

from rampway_operator.telemetry import Telemetry, configure_logging


def test_given_a_rollout_when_it_ends_then_its_series_go_away() -> None:
    telemetry = Telemetry()
    telemetry.rollout_seen(
        "prod", "chat", step=2, weight=25, verdicts={"ttft": "Pass", "hit": "Fail"}
    )
    text = telemetry.exposition().decode()
    assert 'rampway_rollout_step{name="chat",namespace="prod"} 2.0' in text
    assert 'rampway_rollout_weight_percent{name="chat",namespace="prod"} 25.0' in text
    assert 'rampway_rollout_verdict{name="chat",namespace="prod",objective="hit"} -1.0' in text
    telemetry.rollout_seen("prod", "chat", step=3, weight=25, verdicts={"ttft": "Undecided"})
    text = telemetry.exposition().decode()
    assert 'objective="hit"' not in text
    assert 'objective="ttft"} 0.0' in text
    telemetry.no_rollout("prod", "chat")
    telemetry.no_rollout("prod", "never-seen")
    assert 'name="chat"' not in telemetry.exposition().decode()


def test_given_json_logging_when_we_and_a_library_log_then_each_event_is_one_json_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logging("json", "info")
    try:
        structlog.get_logger("ours").info("decision", key="prod/chat", message="two\nlines")
        logging.getLogger("library").warning("hello %s", "there")
        logging.getLogger("kopf.objects").info("chatty")
        try:
            int("broken")
        except ValueError:
            structlog.get_logger("ours").exception("failed")
    finally:
        structlog.reset_defaults()
        logging.getLogger().setLevel(logging.WARNING)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["decision", "hello there", "failed"]
    assert lines[0]["message"] == "two\nlines"
    assert lines[0]["level"] == "info"
    assert "ValueError: invalid literal" in lines[2]["exception"]


def test_given_an_ended_rollout_when_counted_then_its_duration_is_in_buckets_of_hours() -> None:
    telemetry = Telemetry()
    telemetry.rollout_ended("Promoted", 5400.0)
    telemetry.rollout_ended("Promoted", -1.0)  # a clock that was set back
    text = telemetry.exposition().decode()
    assert 'rampway_operator_rollouts_total{outcome="Promoted"} 2.0' in text
    assert 'rampway_operator_rollout_seconds_bucket{le="3600.0",outcome="Promoted"} 1.0' in text
    assert 'rampway_operator_rollout_seconds_bucket{le="7200.0",outcome="Promoted"} 2.0' in text
    assert 'rampway_operator_rollout_seconds_sum{outcome="Promoted"} 5400.0' in text
