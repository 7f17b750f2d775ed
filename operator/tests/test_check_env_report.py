"""The report's three forms, the exit codes, and the command line that people and pods use."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rampway_check_env
from rampway_check_env.cli import main
from rampway_check_env.findings import Fault, Finding, Report, failed, passed, skipped, unable
from rampway_check_env.machine import Machine
from rampway_check_env.report import MESSAGE_LIMIT, as_json, as_message, as_table, usage_message
from rampway_check_env.requirements import DiskSpace, Requirements
from rampway_check_env.run import run_checks
from rampway_operator.cluster.check_env_payload import pack_check_env

SOURCE = Path(rampway_check_env.__file__).parent
NODE = failed(
    "cudaDriver", Fault.BAD_NODE, found="535", required=">=550", remedy="update the driver"
)
IMAGE = failed("glibcxx", Fault.BAD_REVISION, found="3.4.21", required=">=3.4.30", remedy="rebuild")
NOBODY = unable("gpu", found="did not end within 30 s", required="", remedy="look at the node")


@pytest.mark.parametrize(
    ("findings", "code", "name"),
    [
        ((), 0, "Pass"),
        ((passed("shm", "1Gi"), skipped("gpu", "none")), 0, "Pass"),
        ((NODE,), 11, "BadNode"),
        ((NOBODY,), 12, "Infrastructure"),
        ((NOBODY, NODE, IMAGE), 10, "BadRevision"),
        ((NOBODY, NODE), 11, "BadNode"),
    ],
)
def test_given_findings_then_the_worst_fault_decides_code_and_class(
    findings: tuple[Finding, ...], code: int, name: str
) -> None:
    report = Report(findings, 12)

    assert report.exit_code == code
    assert json.loads(as_message(report))["class"] == name
    assert json.loads(as_json(report))["exitCode"] == code


def test_given_failures_then_the_message_holds_them_worst_first_in_one_line() -> None:
    text = as_message(Report((NOBODY, passed("shm", "1Gi"), NODE, IMAGE), 34))
    message = json.loads(text)

    assert "\n" not in text
    assert list(message) == ["v", "class", "failed", "took_ms", "checks"]
    assert message["checks"][:2] == [
        ["gpu", "error", "did not end within 30 s"],
        ["shm", "pass", "1Gi"],
    ]
    assert [entry["check"] for entry in message["failed"]] == ["glibcxx", "cudaDriver", "gpu"]
    assert message["failed"][0] == {
        "check": "glibcxx", "found": "3.4.21", "required": ">=3.4.30", "remedy": "rebuild",
    }  # fmt: skip


def test_given_failures_then_the_table_shows_each_with_its_remedy_and_the_result() -> None:
    table = as_table(Report((passed("shm", "1Gi", "1Mi"), IMAGE), 1500))

    assert re.search(r"^glibcxx +fail +3\.4\.21 +>=3\.4\.30$", table, re.MULTILINE)
    assert "remedy:   rebuild" in table
    assert table.endswith("result: BadRevision (exit code 10): 1 pass, 1 fail in 1.5 s")


@given(
    st.lists(
        st.builds(
            lambda found, remedy: failed(
                "x", Fault.BAD_NODE, found=found, required="y", remedy=remedy
            ),
            st.text(max_size=3000),
            st.text(max_size=3000),
        ),
        max_size=40,
    )
)
def test_a_message_always_fits_and_is_always_json(findings: list[Finding]) -> None:
    text = as_message(Report(tuple(findings), 1))
    message = json.loads(text)

    assert len(text.encode()) <= MESSAGE_LIMIT
    assert len(message["failed"]) + message.get("more", 0) == len(findings)
    if "checks" in message:
        assert [entry[0] for entry in message["checks"]] == [f.check for f in findings]


def test_given_another_image_then_only_the_node_is_checked_and_the_rest_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """preflight.image stands in for an engine image without python3: its libraries say nothing of the engine's."""
    wanted = {"glibcxx": ">=99", "torch": ">=99", "openFiles": 1073741816}

    assert run("--json", "--other-image", "--requirements", json.dumps(wanted)) == 11

    report = json.loads(capsys.readouterr().out)
    assert set(report["unchecked"]) == {
        "glibc", "glibcxx", "symbols", "cudaRuntime", "torch", "triton", "prefixCache",
    }  # fmt: skip
    assert [f["check"] for f in report["findings"] if f["verdict"] == "fail"] == ["openFiles"]


def test_given_faults_of_the_requirements_then_the_message_says_so() -> None:
    message = json.loads(usage_message(["requirements.x: unknown name"]))

    assert message["class"] == "UsageError"
    assert message["failed"][0]["found"] == "requirements.x: unknown name"


def run(*arguments: str) -> int:
    return main([*arguments])


def test_given_good_requirements_then_the_table_is_printed_and_the_code_is_0(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--requirements", '{"openFiles": 1}') == 0
    assert "openFiles" in capsys.readouterr().out


def test_given_a_file_of_requirements_then_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "wanted.json"
    file.write_text('{"openFiles": 1073741816}', encoding="utf-8")

    assert run("--requirements", f"@{file}") == 11


def test_given_json_asked_for_then_the_whole_report_is_one_object(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("--json", "--requirements", '{"disk": [{"path": "/nonexistent", "free": "1"}]}')

    report = json.loads(capsys.readouterr().out)
    [disk] = [f for f in report["findings"] if f["check"] == "disk"]
    assert (disk["verdict"], disk["class"]) == ("error", "Infrastructure")
    assert report["class"] == "Infrastructure"


def test_given_warn_then_the_code_is_0_and_the_message_still_says_what_failed(
    tmp_path: Path,
) -> None:
    log = tmp_path / "termination-log"
    log.touch()

    assert (
        run("--warn", "--requirements", '{"openFiles": 1073741816}', "--termination-log", str(log))
        == 0
    )
    assert json.loads(log.read_text(encoding="utf-8"))["class"] == "BadNode"


def test_given_no_termination_log_then_none_is_made(tmp_path: Path) -> None:
    log = tmp_path / "nowhere" / "log"

    assert run("--termination-log", str(log)) == 0
    assert not log.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--requirements", '{"glibxx": ">=3"}'], "requirements.glibxx: unknown name"),
        (["--requirements", "@/nonexistent"], "/nonexistent cannot be read"),
        (["--requirements", "{"], "not JSON"),
    ],
)
def test_given_requirements_that_cannot_be_understood_then_the_code_is_2_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    log = tmp_path / "termination-log"
    log.touch()

    assert run(*arguments, "--termination-log", str(log)) == 2
    assert words in capsys.readouterr().err
    assert words in json.loads(log.read_text(encoding="utf-8"))["failed"][0]["found"]


@pytest.mark.parametrize(
    "arguments", [["--nope"], ["--timeout", "soon"], ["--timeout", "0s"], ["extra"]]
)
def test_given_wrong_arguments_then_the_code_is_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2


def test_given_custom_commands_then_their_class_and_last_line_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = {
        "custom": [
            {"name": "fine", "command": ["sh", "-c", "echo checked"]},
            {"name": "pair", "command": ["sh", "-c", "echo link down; exit 4"], "class": "BadNode"},
            {"name": "slow", "command": ["sleep", "60"], "timeout": "200ms"},
        ]
    }

    assert run("--json", "--requirements", json.dumps(wanted)) == 11
    found = {f["check"]: f for f in json.loads(capsys.readouterr().out)["findings"]}
    assert found["custom.fine"]["found"] == "checked"
    assert found["custom.pair"]["found"] == "ended with exit code 4: link down"
    assert (found["custom.slow"]["verdict"], found["custom.slow"]["class"]) == (
        "error",
        "Infrastructure",
    )


def test_given_a_machine_nobody_foresaw_then_the_other_checks_still_report(tmp_path: Path) -> None:
    """A requirement that its check cannot handle is one finding, not a traceback."""
    broken = Requirements(disk=(DiskSpace("/\0", 1),), open_files=1)

    report = run_checks(broken, Machine(), timeout=60)

    [finding] = report.failures
    assert (finding.check, finding.fault) == ("limits", Fault.INFRASTRUCTURE)
    assert "the check itself failed: ValueError" in finding.found
    assert {"glibc", "gpu", "prefixCache"} <= {f.check for f in report.findings}


def test_given_the_archive_then_a_bare_python_runs_it_and_it_is_small(tmp_path: Path) -> None:
    archive = tmp_path / "check_env.pyz"
    archive.write_bytes(pack_check_env())
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, str(archive), "--requirements", '{"glibcxx": ">=99"}']

    done = subprocess.run(
        [*command, "--termination-log", str(log)],
        env={},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )

    assert done.returncode == 10, done.stderr
    assert json.loads(log.read_text(encoding="utf-8"))["failed"][0]["check"] == "glibcxx"
    assert len(archive.read_bytes()) < 100 * 1024


def test_given_equal_sources_then_the_archive_has_equal_bytes() -> None:
    assert pack_check_env() == pack_check_env()
    assert "rampway_check_env/cli.py" in zipfile.ZipFile(BytesIO(pack_check_env())).namelist()


def test_given_the_sources_then_python_3_8_can_read_them_and_they_import_only_the_standard_library() -> (
    None
):
    for file in sorted(SOURCE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text, str(file), feature_version=(3, 8))
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = name.partition(".")[0]
                assert top in sys.stdlib_module_names or top == "rampway_check_env", (
                    f"{file}: {name}"
                )
        assert not re.search(
            r"\.(removeprefix|removesuffix)\(|strict=True|\bmatch \w+:|slots=True", text
        ), file


@pytest.mark.skipif(not os.environ.get("PYTHON38"), reason="PYTHON38 does not name a python3.8")
def test_given_python_3_8_then_the_archive_runs(tmp_path: Path) -> None:
    archive = tmp_path / "check_env.pyz"
    archive.write_bytes(pack_check_env())

    done = subprocess.run(
        [os.environ["PYTHON38"], str(archive)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
