"""Wrong flags, files and ports: one line with the remedy, exit status 2, within seconds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from rampway_server.errors import UsageError
from rampway_server.flags import build_parser
from rampway_server.settings import parse_serve

if TYPE_CHECKING:
    from pathlib import Path


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rampway_server", *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
        check=False,
    )


def parsed(*args: str, env: dict[str, str] | None = None) -> object:
    return parse_serve(build_parser().parse_args(["serve", *args]), env or {})


def one_line_of(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 2, result
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert "error: " in lines[0]
    return lines[0]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("serve", "--max-num-seq", "4"), "did you mean --max-num-seqs?"),
        (("serve", "--frobnicate"), "see --help"),
        (("serve", "--port", "http"), "invalid int value: 'http'"),
        (("serve", "--prefix-cache", "redis"), "invalid choice: 'redis'"),
        (("srve",), "invalid choice: 'srve'"),
        ((), "required: COMMAND"),
    ],
)
def test_given_a_wrong_flag_when_parsed_then_one_line_says_what_is_meant(
    args: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(args)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--port", "70000"), "--port is out of range: got 70000"),
        (("--page-size", "12"), "--page-size is no power of two: got 12"),
        (("--num-pages", "1"), "--num-pages is out of range"),
        (("--max-num-seqs", "0"), "--max-num-seqs is out of range"),
        (("--max-num-seqs", "64", "--max-num-batched-tokens", "32"), "above --max-num-batched"),
        (("--port", "9400"), "--port and --metrics-port are both 9400"),
        (("--simulated-speed", "0"), "--simulated-speed is out of range"),
        (("--simulated-speed", "nan"), "--simulated-speed is out of range"),
        (("--drain-delay", "-1"), "--drain-delay is out of range"),
        (("--device", "simulated:h1000"), "need one of a100, h100, h200, b200"),
        (("--device", "gpu"), "--device is unknown: got 'gpu'"),
        (("--device", "simulatd"), "did you mean simulated?"),
        (("--device", "simulated:"), "--device is unknown"),
        (("--simulated-model", "gpt-9"), "simulated model is unknown"),
        (("--served-model-name", "a b"), "--served-model-name is not usable"),
        (("--require-rust-cache", "--prefix-cache", "off"), "--require-rust-cache contradicts"),
        (("--api-key-file", "/nowhere/keys"), "--api-key-file is not a readable file"),
        (("--device", "cpu"), "--model is missing"),
        (("--device", "cpu", "--model", "/nowhere/model.gguf"), "--model does not exist"),
    ],
)
def test_given_a_wrong_value_when_parsed_then_it_is_named_with_the_need(
    args: tuple[str, ...], said: str
) -> None:
    device = () if "--device" in args else ("--device", "simulated")
    with pytest.raises(UsageError) as caught:
        parsed(*device, *args)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_given_several_faults_when_parsed_then_one_line_names_all() -> None:
    with pytest.raises(UsageError) as caught:
        parsed("--device", "gpu", "--port", "-1", "--page-size", "3")
    assert all(flag in str(caught.value) for flag in ("--device", "--port", "--page-size"))


def test_given_the_environment_when_no_flag_is_set_then_it_chooses_the_cache() -> None:
    chosen = parsed("--device", "simulated", env={"RAMPWAY_PREFIX_CACHE": "off"})
    assert chosen.prefix_cache == "off"
    flag = parsed(
        "--device", "simulated", "--prefix-cache", "python", env={"RAMPWAY_PREFIX_CACHE": "off"}
    )
    assert flag.prefix_cache == "python"
    with pytest.raises(UsageError, match="RAMPWAY_PREFIX_CACHE is unknown: got 'redis'"):
        parsed("--device", "simulated", env={"RAMPWAY_PREFIX_CACHE": "redis"})


def test_given_an_unreadable_gguf_when_served_then_one_line_before_torch_is_imported(
    tmp_path: Path,
) -> None:
    broken = tmp_path / "model.gguf"
    broken.write_bytes(b"GGUF\x03\x00\x00\x00" + b"\xff" * 64)
    began = time.monotonic()
    line = one_line_of(run("serve", "--device", "cpu", "--model", str(broken)))
    assert time.monotonic() - began < 30
    assert "model.gguf" in line
    assert "Traceback" not in line


def test_given_a_file_that_is_no_model_when_served_then_one_line(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"hello")
    (tmp_path / "folder").mkdir()
    for name in ("model.gguf", "folder"):
        one_line_of(run("serve", "--device", "cpu", "--model", str(tmp_path / name)))


@pytest.mark.parametrize("flag", ["--port", "--metrics-port"])
def test_given_a_port_in_use_when_served_then_one_line_with_the_remedy(flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"--port": "0", "--metrics-port": "0", flag: str(taken.getsockname()[1])}
        flags = [part for pair in ports.items() for part in pair]
        line = one_line_of(
            run("serve", "--device", "simulated:instant", "--host", "127.0.0.1", *flags)
        )
    assert f"{flag} cannot listen on 127.0.0.1:" in line
    assert "choose another port" in line


def test_given_a_context_above_the_model_or_the_pool_when_served_then_one_line() -> None:
    base = ("serve", "--device", "simulated:instant", "--port", "0", "--metrics-port", "0")
    above = run(*base, "--context-length", "9000")
    assert "need at most 8192 for llama-3-8b" in above.stderr.splitlines()[-1]
    assert above.returncode == 2
    pool = run(*base, "--context-length", "8000", "--num-pages", "100")
    assert "does not fit the KV pool" in pool.stderr.splitlines()[-1]
    assert pool.returncode == 2


def test_given_help_when_asked_then_every_flag_has_a_text() -> None:
    result = run("serve", "--help")
    assert result.returncode == 0
    for flag in ("--model", "--device", "--prefix-cache", "--drain-timeout", "--metrics-port"):
        assert flag in result.stdout


def test_given_info_when_asked_then_json_says_what_is_installed_without_torch() -> None:
    result = run("info")
    assert result.returncode == 0
    info = json.loads(result.stdout)
    assert info["version"] == "0.1.0"
    assert "simulated:h100" in info["devices"]


def test_given_the_simulated_device_when_serving_code_is_imported_then_torch_is_not() -> None:
    code = "import sys, rampway_server.serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
