"""Turns an InferenceDeployment as the API server holds it into a Spec, or into all of its faults.

It does not know the cluster: what only the cluster can tell (a name that is taken, a metric that an
engine does not export) is found later and reported in the same condition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from rampway_operator.core.parse_engine import read_engine
from rampway_operator.core.parse_strategy import (
    read_analysis,
    read_preflight,
    read_strategy,
    read_warmup,
)
from rampway_operator.core.parse_traffic import read_traffic
from rampway_operator.core.reader import Node
from rampway_operator.core.rules import broken_rules
from rampway_operator.core.spec import ConfigRef, OnChange, Spec

__all__ = ["InvalidSpec", "parse"]

_CONFIG_MAP: Final = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


class InvalidSpec(Exception):
    """The spec cannot be used. `faults` has one sentence with field path for each thing that is wrong."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def parse(raw: Any) -> Spec:
    """The spec of a whole InferenceDeployment, with defaults.

    Raises nothing but InvalidSpec, whatever `raw` is; rules that span fields are only looked at once
    every field by itself is fine.
    """
    faults: list[str] = []
    root = Node(raw if isinstance(raw, Mapping) else {}, "", faults)
    name = root.get("metadata").get("name")
    if isinstance(name.value, str) and (
        _NAME.fullmatch(name.value) is None or name.value.endswith("-preview")
    ):
        name.fault(
            f"{name.value!r} becomes the name of a Service: use at most 40 lower case letters, digits and "
            "dashes, begin with a letter, and do not end with -preview"
        )
    spec = _spec(root.get("spec"))
    if not faults:
        faults += broken_rules(spec)
    if faults:
        raise InvalidSpec(tuple(faults))
    return spec


def _spec(node: Node) -> Spec:
    node.object(
        "replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadline", "paused", "engine",
        "configRefs", "preflight", "warmup", "traffic", "strategy", "analysis", "disruption",
    )  # fmt: skip
    budget = node.get("disruption").object("podDisruptionBudget").get("podDisruptionBudget")
    budget.object("maxUnavailable")
    canary, blue_green = read_strategy(node.get("strategy"))
    return Spec(
        engine=read_engine(node.get("engine")),
        replicas=node.get("replicas").integer(1, 0, 1000),
        min_ready_seconds=node.get("minReadySeconds").integer(10, 0, 3600),
        revision_history_limit=node.get("revisionHistoryLimit").integer(3, 0, 20),
        progress_deadline=node.get("progressDeadline").duration(
            timedelta(minutes=30), least=timedelta(seconds=10)
        ),
        paused=node.get("paused").boolean(default=False),
        config_refs=_config_refs(node.get("configRefs")),
        preflight=read_preflight(node.get("preflight")),
        warmup=read_warmup(node.get("warmup")),
        traffic=read_traffic(node.get("traffic")),
        canary=canary,
        blue_green=blue_green,
        analysis=read_analysis(node.get("analysis")),
        pdb_max_unavailable=budget.get("maxUnavailable").pods(1),
    )


def _config_refs(node: Node) -> tuple[ConfigRef, ...]:
    refs: list[ConfigRef] = []
    for item in node.items(16):
        item.object("kind", "name", "onChange")
        item.get("kind").text("ConfigMap", pattern="ConfigMap")
        # A copy's name has the object's and the revision's before it.
        name = item.get("name").text("", pattern=_CONFIG_MAP, most=190, least=1)
        if any(ref.name == name for ref in refs):
            item.get("name").fault(f"{name!r} is given twice")
        refs.append(ConfigRef(name, item.get("onChange").one_of(OnChange, OnChange.ROLLOUT)))
    return tuple(refs)
