"""Digests that tell one revision, and one plan, from another. It does not know what they are used for.

Algorithm v1. In the revision hash: what the user wrote under `spec.engine`, all of it, since a pod sees
it (`metricsPath` and `type` included: they say how those pods are read), and the content of the ConfigMaps
under `spec.configRefs`. Not in it: `replicas`, `paused`,
strategy, analysis, traffic, disruption, warm-up, and preflight (stricter requirements judge the next try
of a revision; they do not make another one of it). What the operator adds to a pod is not in it, so that
an operator upgrade never rolls anything (a ReplicaSet is not changed after its creation).

A value that equals its default of v1 is left out, so an API server that writes defaults into the object
changes nothing. The defaults of v1 are frozen here: a later change of a default must not change a hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from rampway_operator.core.spec import Engine, Objective, Spec, Step

__all__ = ["ALGORITHM", "plan_digest", "revision_hash", "run_digest", "strategy_of"]

ALGORITHM: Final = "v1"

_DEFAULTS: Final[dict[str, Any]] = {
    "type": "Rampway",
    "port": 8000,
    "metricsPath": "/metrics",
    "health": {"readiness": "/readyz", "liveness": "/livez", "startupTimeout": "20m"},
    "terminationGracePeriodSeconds": 120,
    "sharedMemory": "1Gi",
}
_ITEM_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "env": {"value": ""},
    "volumeMounts": {"readOnly": False},
    "tolerations": {"operator": "Equal", "effect": "", "value": ""},
    "configMap": {"optional": False, "defaultMode": 420},
    "configMapKeyRef": {"optional": False},
    "secretKeyRef": {"optional": False},
    "persistentVolumeClaim": {"readOnly": True},
    "image": {"pullPolicy": "IfNotPresent"},
    "emptyDir": {"medium": ""},
}
_VERBATIM: Final = frozenset(
    {"podLabels", "podAnnotations", "nodeSelector", "affinity", "topologySpreadConstraints"}
)
"""Blocks whose keys are the user's own, or in which empty and absent differ."""
_KEEP_EMPTY: Final = frozenset({"emptyDir", "configMap", "persistentVolumeClaim", "image"})


def revision_hash(raw: Mapping[str, Any], configs: Mapping[str, str] | None = None) -> str:
    """Ten characters [a-f0-9] for the engine of a whole InferenceDeployment as the API server holds it.

    `configs` has the digests of the ConfigMaps in `spec.configRefs`; without any the hash is the engine's.
    """
    spec = raw.get("spec")
    engine = spec.get("engine") if isinstance(spec, Mapping) else None
    tracked = [dict(configs)] if configs else []
    return _digest([ALGORITHM, _strip(engine or {}, _DEFAULTS), *tracked])[:10]


def plan_digest(spec: Spec) -> str:
    """Everything of a spec but engine, replicas and paused: a failed revision may be tried under another."""
    neutral = replace(spec, engine=Engine(image=""), replicas=1, paused=False)
    return _digest(_plain(neutral))[:10]


def run_digest(spec: Spec) -> str:
    """`<steps>.<objectives>` of the plan that a rollout follows; either half may change in the middle."""
    return f"{_half(spec.canary.steps)}.{_half(spec.analysis.objectives)}"


def strategy_of(spec: Spec) -> str:
    """The name of the spec's strategy, as the field that it is written in."""
    return "canary" if spec.blue_green is None else "blueGreen"


@lru_cache(maxsize=512)
def _half(part: tuple[Step, ...] | tuple[Objective, ...]) -> str:
    """Remembered: it is asked for in every tick and never differs for equal parts."""
    return _digest(_plain(part))[:8]


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _strip(value: Any, defaults: Any) -> Any:
    """`value` without what equals its default and without what is empty; quantities as text."""
    if isinstance(value, Mapping):
        kept = {}
        for key, item in value.items():
            below = defaults.get(key) if isinstance(defaults, Mapping) else None
            if not isinstance(below, Mapping):
                below = _ITEM_DEFAULTS.get(str(key), below)
            stripped = item if key in _VERBATIM else _strip(item, below)
            if str(key) in _KEEP_EMPTY or (
                stripped not in ("", [], {}, None)
                and (isinstance(below, Mapping) or str(stripped) != str(below))
            ):
                kept[str(key)] = stripped
        return kept
    if isinstance(value, list):
        return [_strip(item, defaults) for item in value]
    # `1` and "1" are the same quantity; booleans stay apart from the texts of their names.
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def _plain(value: Any) -> Any:
    """A frozen dataclass tree as JSON, with the type names that tell steps apart."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            "": type(value).__name__,
            **{field.name: _plain(getattr(value, field.name)) for field in fields(value)},
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return value
