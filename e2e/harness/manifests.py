"""The objects that demo and tests apply, as a user would write them.

It does not know what becomes of them.
"""

from __future__ import annotations

import json
from typing import Any

from loadgen.workload import Workload, system_prompt

__all__ = ["ENGINE_RESOURCES", "inference_deployment", "load_arguments", "warm_prompts"]

ENGINE_RESOURCES = {"requests": {"cpu": "40m", "memory": "128Mi"}}


def warm_prompts(name: str, load: Workload) -> dict[str, Any]:
    """Return the ConfigMap with one chat a system prompt, so that a new pod's cache can be filled."""
    bodies = [
        {
            "messages": [
                {"role": "system", "content": system_prompt(load, group)},
                {"role": "user", "content": "hello"},
            ],
            "max_tokens": 1,
        }
        for group in range(load.groups)
    ]
    lines = "\n".join(json.dumps(body) for body in bodies) + "\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"prompts.jsonl": lines},
    }


def load_arguments(load: Workload, model: str = "default") -> tuple[str, ...]:
    """Return the load generator's command line for a workload."""
    return (
        "--model", model,
        "--chats-per-second", str(load.chats_per_second),
        "--turns", str(load.turns),
        "--think", str(load.think_seconds),
        "--groups", str(load.groups),
        "--system-words", str(load.system_words),
        "--user-words", str(load.user_words),
        "--max-tokens", str(load.max_tokens),
        "--seed", str(load.seed),
        "--progress", "2",
    )  # fmt: skip


def inference_deployment(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an InferenceDeployment with the given spec."""
    return {
        "apiVersion": "rampway.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": spec,
    }
