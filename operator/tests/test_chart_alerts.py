"""Alerts and dashboard name only metrics that exist, and every alert has a runbook that fits the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml
from test_chart_render import BUILT, CHART, ROOT, needs_helm, of_kind, rendered

from rampway_operator.core.state import EndReason
from rampway_operator.telemetry import Telemetry
from rampway_server.telemetry import Telemetry as ServerTelemetry

RUNBOOKS = ROOT / "docs" / "runbooks"
PROMTOOL = shutil.which("promtool", path=f"{BUILT}:/usr/local/bin:/usr/bin")


def exported() -> set[str]:
    """Return the names of all series that operator and server export."""
    names = set()
    for registry in (Telemetry().registry, ServerTelemetry().registry):
        for family in registry.collect():
            endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
            names |= {family.name + ending for ending in endings.get(family.type, [""])}
    return names


def metrics_of(expression: str) -> set[str]:
    return set(
        re.findall(r"\brampway_(?:operator|rollout|[a-z]+)_[a-z_]+\b", strings_cut(expression))
    )


def strings_cut(expression: str) -> str:
    """Return the expression without label names and values, which are no metrics."""
    without_selectors = re.sub(r"\{[^}]*\}", "", expression)
    return re.sub(r"\bby \([^)]*\)", "", without_selectors)


def alerts() -> list[dict[str, Any]]:
    [rule] = of_kind(rendered("metrics.prometheusRule.enabled=true"), "PrometheusRule")
    [group] = rule["spec"]["groups"]
    return list(group["rules"])


def test_given_the_dashboard_then_every_series_it_draws_is_exported() -> None:
    dashboard = json.loads((CHART / "dashboards" / "rollouts.json").read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]

    drawn = set().union(*map(metrics_of, expressions))

    assert len(drawn) >= 10
    assert drawn - exported() == set()


@needs_helm
def test_given_the_alerts_then_every_series_they_ask_for_is_exported() -> None:
    asked = [metrics_of(alert["expr"]) for alert in alerts()]

    assert all(asked)
    assert set().union(*asked) - exported() == set()


@needs_helm
def test_given_the_alerts_then_each_has_a_runbook_with_its_name_and_no_runbook_is_left_over() -> (
    None
):
    pages = {alert["alert"]: ROOT / alert["annotations"]["runbook"] for alert in alerts()}

    for name, page in pages.items():
        assert page.read_text(encoding="utf-8").startswith(f"# {name}: ")
    assert set(RUNBOOKS.glob("*.md")) == set(pages.values())


def test_given_the_runbook_of_a_rollback_then_it_knows_every_reason_but_promoted() -> None:
    text = (RUNBOOKS / "rolled-back.md").read_text(encoding="utf-8")
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))

    assert set(re.findall(r"`([A-Z][A-Za-z]+)`", table)) == {
        reason.value for reason in EndReason if reason is not EndReason.PROMOTED
    }


@needs_helm
@pytest.mark.skipif(PROMTOOL is None, reason=f"promtool is neither in {BUILT} nor in the system")
def test_given_the_alerts_then_promtool_parses_them(tmp_path: Any) -> None:
    assert PROMTOOL is not None
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "rampway", "rules": alerts()}]}))

    done = subprocess.run(
        [PROMTOOL, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
