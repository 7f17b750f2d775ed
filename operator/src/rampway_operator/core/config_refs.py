"""ConfigMaps whose content belongs to a revision: what it adds to the hash, and each revision's own copy.

It does not know how ConfigMaps are read, nor when a copy is made.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rampway_operator.core.observed import Observed
from rampway_operator.core.spec import ConfigRef, Engine, OnChange, Spec

__all__ = ["MISSING", "config_digests", "content", "copy_name", "missing_configs", "with_copies"]

MISSING = "missing"
"""Stands for the digest of a ConfigMap that does not exist: no revision has it, so none can be made."""


def content(config_map: Mapping[str, Any]) -> dict[str, Any]:
    """What a pod can see of a ConfigMap as the API server holds it."""
    return {key: config_map[key] for key in ("data", "binaryData") if config_map.get(key)}


def config_digests(
    refs: tuple[ConfigRef, ...], configs: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Name to digest of the content, for the revision hash; an empty one where changes are ignored.

    The names are in it, too: they decide which copies a pod mounts.
    """
    digests = {}
    for ref in refs:
        found = configs.get(ref.name)
        text = json.dumps(found, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
        digest = MISSING if found is None else hashlib.sha256(text.encode()).hexdigest()
        tracked = found is None or ref.on_change is OnChange.ROLLOUT
        digests[ref.name] = digest if tracked else ""
    return digests


def missing_configs(spec: Spec, observed: Observed) -> str:
    """Which ConfigMaps of `spec.configRefs` do not exist, with the remedy; empty when all do."""
    names = [ref.name for ref in spec.config_refs if ref.name not in observed.configs]
    if not names:
        return ""
    return (
        f"spec.configRefs: ConfigMap {', '.join(names)} does not exist in {observed.namespace}: "
        "create it, or take it out of configRefs"
    )


def copy_name(child: str, config_map: str) -> str:
    """The name of a revision's copy; `child` is the name of the revision's objects."""
    return f"{child}-{config_map}"


def with_copies(engine: Engine, refs: tuple[ConfigRef, ...], child: str) -> Engine:
    """The engine with every volume and variable of a tracked ConfigMap pointed to the revision's copy."""
    names = {ref.name: copy_name(child, ref.name) for ref in refs}
    if not names:
        return engine
    volumes, env = copy.deepcopy(engine.volumes), copy.deepcopy(engine.env)
    sources = [v["configMap"] for v in volumes if "configMap" in v]
    sources += [e["valueFrom"]["configMapKeyRef"] for e in env if _is_config(e)]
    for source in sources:
        source["name"] = names.get(source.get("name"), source.get("name"))
    return replace(engine, volumes=volumes, env=env)


def _is_config(entry: Mapping[str, Any]) -> bool:
    return "configMapKeyRef" in (entry.get("valueFrom") or {})
