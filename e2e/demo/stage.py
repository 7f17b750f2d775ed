"""Brings up what the stories need: cluster, images, operator and load; each step says what it does.

It does not know the stories.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from harness.kube import Kube
from harness.load import LoadPod
from harness.manifests import load_arguments, warm_prompts
from loadgen.workload import Workload

__all__ = ["CHAT", "IMAGES", "LOAD", "NAMESPACE", "load_pod", "prepare", "say"]

NAMESPACE = "demo"
CHAT = Path(__file__).with_name("chat.yaml")
IMAGES = ("operator", "demo", "demo-v2", "demo-old-libstdcxx")
LOADED = (
    "localhost/rampway/operator:dev",
    *(f"localhost/rampway/server:{tag}" for tag in IMAGES if tag != "operator"),
)
# About two requests a second: less than what the real model answers on two cores.
LOAD = Workload(
    chats_per_second=0.7,
    turns=3,
    think_seconds=3,
    groups=4,
    system_words=120,
    user_words=12,
    max_tokens=8,
)
BEGIN = time.monotonic()


def say(line: str = "") -> None:
    """Print one line with the minutes and seconds since the start."""
    passed = int(time.monotonic() - BEGIN)
    print(f"[{passed // 60:02d}:{passed % 60:02d}] {line}", flush=True)


def _cluster(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cluster", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def prepare() -> Kube:
    """Return the cluster with images loaded and the operator installed; may be run again."""
    say("building the local cluster, unless it is there (13 min the first time)")
    _cluster("build")
    say(f"building the images {', '.join(IMAGES)}, unless they are there (8 min the first time)")
    _cluster("images", "build", *IMAGES)
    say("starting the cluster")
    _cluster("up")
    say("loading the images into the cluster's node")
    _cluster("load", *LOADED)
    kube = Kube.local(_cluster("env"), NAMESPACE)
    say(f"helm install rampway charts/rampway --namespace {NAMESPACE}")
    kube.delete_namespace()
    kube.create_namespace()
    kube.install_operator("localhost/rampway/operator:dev")
    kube.apply(warm_prompts("chat-prompts", LOAD))
    return kube


def load_pod(kube: Kube) -> LoadPod:
    """Return the load generator for the demo's service, not started."""
    return LoadPod(
        kube,
        "localhost/rampway/server:demo",
        f"http://chat.{NAMESPACE}:8000",
        load_arguments(LOAD, "smollm2"),
    )
