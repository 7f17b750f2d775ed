from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from rampway_operator.__main__ import main
from rampway_operator.errors import SettingsError
from rampway_operator.settings import read_settings

NOWHERE = Path("/nonexistent/namespace")


@pytest.fixture
def in_pod(tmp_path: Path) -> Path:
    path = tmp_path / "namespace"
    path.write_text("team-a\n")
    return path


def test_given_nothing_when_in_a_pod_then_its_own_namespace_is_served_and_holds_the_lease(
    in_pod: Path,
) -> None:
    settings = read_settings({}, namespace_file=in_pod)
    assert settings.namespaces == ("team-a",)
    assert (settings.lease_namespace, settings.lease_name) == ("team-a", "rampway-operator")
    assert (settings.http_port, settings.log_format, settings.log_level) == (8080, "json", "info")


def test_given_a_star_when_read_then_all_namespaces_are_served(in_pod: Path) -> None:
    settings = read_settings({"RAMPWAY_NAMESPACES": "*"}, namespace_file=in_pod)
    assert settings.namespaces == ()
    assert settings.lease_namespace == "team-a"


def test_given_a_list_when_read_then_spaces_and_repeats_do_not_matter() -> None:
    settings = read_settings({"RAMPWAY_NAMESPACES": " a, b,,a ,"}, namespace_file=NOWHERE)
    assert settings.namespaces == ("a", "b")
    assert settings.lease_namespace == "a"


def test_given_a_flag_and_a_variable_when_read_then_the_flag_wins() -> None:
    environ = {"RAMPWAY_NAMESPACES": "a", "RAMPWAY_HTTP_PORT": "1"}
    settings = read_settings(environ, flags={"HTTP_PORT": "2"}, namespace_file=NOWHERE)
    assert settings.http_port == 2


def test_given_two_processes_when_no_identity_is_set_then_theirs_differ() -> None:
    environ = {"RAMPWAY_NAMESPACES": "a"}
    first = read_settings(environ, namespace_file=NOWHERE)
    assert first.identity != read_settings(environ, namespace_file=NOWHERE).identity


def test_given_no_namespace_outside_a_pod_when_read_then_it_is_asked_for() -> None:
    with pytest.raises(SettingsError, match="RAMPWAY_NAMESPACES: got '', need a comma list"):
        read_settings({}, namespace_file=NOWHERE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NAMESPACES", "a,B"),
        ("NAMESPACES", "*,a"),
        ("NAMESPACES", "a b"),
        ("NAMESPACES", "../etc"),
        ("LEASE_NAME", "Upper"),
        ("LEASE_NAMESPACE", "-a"),
        ("HTTP_PORT", "http"),
        ("HTTP_PORT", "65536"),
        ("HTTP_PORT", "-1"),
        ("HTTP_PORT", "８０"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "loud"),
        ("KUBECONFIG", "/nonexistent"),
    ],
)
def test_given_a_bad_value_when_read_then_the_fault_names_the_variable_and_the_value(
    name: str, value: str
) -> None:
    environ = {"RAMPWAY_NAMESPACES": "a", "RAMPWAY_LEASE_NAMESPACE": "a"} | {
        f"RAMPWAY_{name}": value
    }
    with pytest.raises(SettingsError, match=rf"^RAMPWAY_{name}: got '.*', need "):
        read_settings(environ, namespace_file=NOWHERE)


def test_given_several_bad_values_when_started_then_one_line_with_all_of_them_and_exit_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAMPWAY_LOG_LEVEL", "loud")
    assert main(["run", "--namespaces", "a", "--http-port", "x"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert re.match(r"rampway-operator: RAMPWAY_HTTP_PORT: .*; RAMPWAY_LOG_LEVEL: ", told)


def test_given_no_cluster_when_started_then_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    path = tmp_path / "kubeconfig"
    path.write_text("not: a kubeconfig\n")
    assert main(["run", "--namespaces", "a", "--kubeconfig", str(path)]) == 1
    assert "rampway-operator: cannot log in to a cluster: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["fly"], ["run", "--nope"]])
def test_given_wrong_usage_when_started_then_exit_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
