"""The real model on CPU: deployed, checked with torch and Triton, and answering over its prefix cache."""

from __future__ import annotations

import dataclasses

import pytest
import yaml
from stage_builders import REAL

from demo.stage import CHAT
from demo.stage import LOAD as REAL_LOAD
from harness.kube import Kube
from harness.load import LoadPod
from harness.manifests import load_arguments, warm_prompts
from harness.story import Story, condition

pytestmark = pytest.mark.e2e


def test_given_the_real_model_when_deployed_then_real_clients_are_answered_from_its_prefix_cache(
    kube: Kube,
) -> None:
    manifest = yaml.safe_load(CHAT.read_text())
    manifest["spec"]["replicas"] = 1
    manifest["spec"]["engine"]["image"] = REAL
    manifest["spec"]["engine"]["resources"]["requests"]["cpu"] = "40m"
    kube.apply(warm_prompts("chat-prompts", REAL_LOAD), manifest)
    reason, message = Story(kube, "chat", print).until_ended(1, timeout=300)
    assert reason == "Promoted", message
    assert condition(kube.get("infd", "chat")["status"], "EnvironmentReady")["status"] == "True"

    load = dataclasses.replace(REAL_LOAD, chats_per_second=0.3, groups=1)
    url = f"http://chat.{kube.namespace}:8000"
    arguments = (*load_arguments(load, "smollm2"), "--duration", "25")
    traffic = LoadPod(kube, REAL, url, arguments)
    traffic.start()
    report = traffic.ended(timeout=120)
    assert report["failed"] == 0, report
    assert report["answered"] >= 3
    assert report["cached_tokens"] > report["prompt_tokens"] / 3
