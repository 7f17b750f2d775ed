"""What the story tests have in common: a small simulated fleet, its load and its rollout."""

from __future__ import annotations

import os
from typing import Any

from harness.kube import Kube
from harness.load import LoadPod
from harness.manifests import ENGINE_RESOURCES, inference_deployment, load_arguments, warm_prompts
from harness.story import Story
from loadgen.workload import Workload

SIMULATED = os.environ.get("E2E_SERVER_IMAGE", "localhost/rampway/server:simulated")
SIMULATED_V2 = os.environ.get("E2E_SERVER_IMAGE_V2", "localhost/rampway/server:simulated-v2")
OLD_LIBSTDCXX = os.environ.get(
    "E2E_SERVER_IMAGE_OLD", "localhost/rampway/server:simulated-old-libstdcxx"
)
REAL = os.environ.get("E2E_REAL_IMAGE", "localhost/rampway/server:demo")

NAME = "chat"
LOAD = Workload(
    chats_per_second=4.0,
    turns=3,
    think_seconds=1,
    groups=4,
    system_words=300,
    user_words=20,
    max_tokens=8,
)
# A tenth of an H100: a token takes 50 ms, so that what a busy machine adds does not decide.
ARGUMENTS = [
    "--device",
    "simulated:h100",
    "--simulated-speed",
    "0.1",
    "--served-model-name",
    NAME,
    "--drain-delay",
    "3",
    "--drain-timeout",
    "20",
]


def spec(**changes: Any) -> dict[str, Any]:
    """Return the spec of a two-replica simulated deployment with short windows."""
    base: dict[str, Any] = {
        "replicas": 2,
        "engine": {
            "image": SIMULATED,
            "args": ARGUMENTS,
            "resources": ENGINE_RESOURCES,
            "terminationGracePeriodSeconds": 40,
        },
        "preflight": {"requirements": {"glibcxx": ">=3.4.30", "prefixCache": {"backend": "rust"}}},
        "warmup": {
            "source": {"promptSet": {"configMapName": "warm"}},
            "budget": {"maxDuration": "1m"},
        },
        "strategy": {
            "canary": {
                "maxSurge": 2,
                "steps": [
                    {"warmup": {}},
                    {"setWeight": 5},
                    {"analysis": {}},
                    {"setWeight": 50},
                    {"analysis": {}},
                    {"setWeight": 100},
                ],
                "bake": "5s",
                "scaleDownDelay": "2s",
            }
        },
        "analysis": {
            "interval": "3s",
            "maxDuration": "5m",
            "objectives": [
                {
                    "name": "ttft-tail",
                    "metric": "TTFT",
                    "tail": "0.90",
                    "comparison": {"against": "Baseline", "maxRegression": "1.00"},
                    "minSamples": 50,
                },
                {
                    "name": "hit-rate",
                    "metric": "PrefixCacheHitRate",
                    "comparison": {"against": "Baseline", "maxDrop": "0.10"},
                    "minSamples": 50,
                    "steadyOnly": True,
                },
                {
                    "name": "errors",
                    "metric": "ErrorRate",
                    "slo": {"max": "0.01"},
                    "minSamples": 50,
                    "require": "NotFail",
                },
            ],
        },
    }
    return base | changes


def deploy(kube: Kube, tell: Any = print, **changes: Any) -> Story:
    """Apply a first deployment, after removing another test's, and follow it until it serves."""
    kube.kubectl(
        "delete", "infd", NAME, "--ignore-not-found", "--cascade=foreground", "--timeout=120s", timeout=130
    )  # fmt: skip
    kube.apply(warm_prompts("warm", LOAD), inference_deployment(NAME, spec(**changes)))
    story = Story(kube, NAME, tell)
    reason, message = story.until_ended(1, timeout=120)
    assert reason == "Promoted", message
    return story


def change(kube: Kube, story: Story, body: dict[str, Any]) -> int:
    """Patch the spec and return the generation that this made."""
    story.skip_past()
    kube.patch("infd", NAME, {"spec": body})
    generation: int = kube.get("infd", NAME)["metadata"]["generation"]
    return generation


def load(kube: Kube) -> LoadPod:
    """Return the load generator beside the service, not started."""
    return LoadPod(
        kube, SIMULATED, f"http://{NAME}.{kube.namespace}:8000", load_arguments(LOAD, NAME)
    )
