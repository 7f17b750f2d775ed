"""The end-to-end benchmark against a real server process on the instant device."""

from __future__ import annotations

import json

import pytest

from rampway_server.__main__ import main


def test_given_a_small_load_when_both_caches_serve_it_then_every_request_has_a_first_token(
    capsys, tmp_path
):
    pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")
    figures = tmp_path / "ttft.json"
    command = ["bench", "ttft", "--device", "simulated:instant", "--rounds", "1"]
    command += ["--concurrency", "4", "--requests", "12", "--json", str(figures)]
    assert main(command) == 0
    rows = json.loads(figures.read_text(encoding="utf-8"))
    assert [(row["backend"], row["requests"], row["failed"]) for row in rows] == [
        ("rust", 12, 0),
        ("python", 12, 0),
    ]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert all(row["gc_collections"] > 0 for row in rows)
    assert "shared system prompt" in capsys.readouterr().out


def test_given_a_real_device_when_asked_for_then_refused_in_one_line(capsys):
    assert main(["bench", "ttft", "--device", "cpu"]) == 2
    assert "need simulated:h100" in capsys.readouterr().err
