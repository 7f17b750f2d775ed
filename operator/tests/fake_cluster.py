"""An API server in memory with a ReplicaSet controller, a kubelet and engines that answer on loopback.

Nothing runs by itself: `settle` lets the controllers do what they would, `advance` lets time and traffic pass.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from api_server import ApiServer, Object

from rampway_operator.cluster.client import Client, connect
from rampway_operator.cluster.pod_http import PodHttp
from rampway_operator.queue import Key
from rampway_operator.reconcile import Reconciler
from rampway_operator.telemetry import Telemetry

EDGES = ("0.1", "0.2", "0.5", "1.0", "2.0", "+Inf")
ROTATION = "rampway.dev/in-rotation"


@dataclass
class Behaviour:
    """How the pods of one image behave."""

    check_exit: int = 0
    check_message: str = ""
    ready: bool = True
    seconds: float = 0.15
    """Latency of every request."""
    hit_rate: float = 0.8
    answers: bool = True


@dataclass
class EngineState:
    image: str
    requests: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * len(EDGES))
    prompt: int = 0
    cached: int = 0


class FakeCluster(ApiServer):
    """`async with FakeCluster(folder) as cluster`."""

    def __init__(self, folder: Path, engine_port: int = 0) -> None:
        super().__init__(folder)
        self.engine_port = engine_port
        """It is part of the revision hash; 0 takes a free one."""
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
        self.behaviours: dict[str, Behaviour] = {}
        self.engines: dict[str, EngineState] = {}
        self.created: list[str] = []
        self.least_serving: int | None = None
        self._ips = itertools.count(10)
        self._suffixes = itertools.count(1)

    async def __aenter__(self) -> FakeCluster:
        await super().__aenter__()
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/chat/completions", self._complete)
        self._engine_runner = web.AppRunner(app)
        await self._engine_runner.setup()
        site = web.TCPSite(self._engine_runner, "0.0.0.0", self.engine_port)
        await site.start()
        self.engine_port = int(self._engine_runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._engine_runner.cleanup()
        await super().__aexit__()

    async def reconciler(self) -> tuple[Reconciler, Client]:
        """A fresh operator process, so to say."""
        client = await connect(kubeconfig=str(self.kubeconfig))
        http = PodHttp(loopback_allowed=True)
        reconciler = Reconciler(
            client,
            Telemetry(),
            lambda _key: None,
            http=http,
            clock=lambda: self.now,
            jitter=lambda: 0.5,
        )
        return reconciler, client

    def behaviour(self, image: str) -> Behaviour:
        return self.behaviours.setdefault(image, Behaviour())

    def deploy(self, image: str, **spec: Any) -> Object:
        """Create the InferenceDeployment `chat`, or change its image and spec."""
        engine = {"image": image, "port": self.engine_port, "metricsPort": self.engine_port}
        wanted = {
            "replicas": 2,
            "minReadySeconds": 1,
            "engine": engine,
            "strategy": {"canary": {}},
            **spec,
        }
        known = self.get("inferencedeployments", "chat")
        if known is None:
            body = {"metadata": {"name": "chat", "generation": 1}, "spec": wanted}
            return self.put("inferencedeployments", body)
        changed = copy.deepcopy(known)
        changed["spec"] = wanted
        changed["metadata"]["generation"] += 1
        return self.put("inferencedeployments", changed)

    @property
    def status(self) -> Object:
        found = self.get("inferencedeployments", "chat")
        assert found is not None
        return dict(found.get("status") or {})

    def condition(self, kind: str) -> Object:
        return next((c for c in self.status.get("conditions", []) if c["type"] == kind), {})

    def settle(self) -> None:
        """What the ReplicaSet controller, the kubelet and the endpoints controller would do by now."""
        for replica_set in self.all("replicasets"):
            self._scale(replica_set)
        owners = {rs["metadata"]["uid"] for rs in self.all("replicasets")}
        for pod in self.all("pods"):
            if pod["metadata"]["ownerReferences"][0]["uid"] not in owners:
                self._remove(pod)
            else:
                self._run(pod)
        self._endpoints()

    def advance(self, seconds: float, *, requests: int = 0) -> None:
        """Let time pass and `requests` arrive at each pod that takes traffic."""
        self.now += timedelta(seconds=seconds)
        serving = [pod for pod in self.all("pods") if _serves(pod)]
        for pod in serving:
            state = self.engines[pod["status"]["podIP"]]
            self._serve(state, requests)
        if self.least_serving is not None:
            self.least_serving = min(self.least_serving, len(serving))

    def _serve(self, state: EngineState, requests: int) -> None:
        behaviour = self.behaviour(state.image)
        state.requests += requests
        state.prompt += requests * 100
        state.cached += round(requests * 100 * behaviour.hit_rate)
        for index, edge in enumerate(EDGES):
            if behaviour.seconds <= float(edge):
                state.buckets[index] += requests

    def _scale(self, replica_set: Object) -> None:
        uid, name = replica_set["metadata"]["uid"], replica_set["metadata"]["name"]
        mine = [p for p in self.all("pods") if p["metadata"]["ownerReferences"][0]["uid"] == uid]
        mine.sort(
            key=lambda p: (
                -int(
                    p["metadata"]
                    .get("annotations", {})
                    .get("controller.kubernetes.io/pod-deletion-cost", "0")
                )
            )
        )
        for pod in mine[replica_set["spec"]["replicas"] :]:
            self._remove(pod)
        for _ in range(replica_set["spec"]["replicas"] - len(mine)):
            template = copy.deepcopy(replica_set["spec"]["template"])
            owner = {"kind": "ReplicaSet", "name": name, "uid": uid, "controller": True}
            metadata = template["metadata"] | {
                "name": f"{name}-{next(self._suffixes)}",
                "ownerReferences": [owner],
                "creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            self.put("pods", {"metadata": metadata, "spec": template["spec"], "status": {}})
            self.created.append(metadata["name"])

    def _remove(self, pod: Object) -> None:
        metadata = pod["metadata"]
        del self.objects["pods", metadata["namespace"], metadata["name"]]

    def _run(self, pod: Object) -> None:
        """One step of the pod's life: check, then ready with an address."""
        image = pod["spec"]["containers"][0]["image"]
        behaviour, status = self.behaviour(image), pod["status"]
        at = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        before = copy.deepcopy(status)
        if "podIP" not in status:
            status["podIP"] = f"127.0.0.{next(self._ips)}"
            self.engines[status["podIP"]] = EngineState(image)
            ended = {
                "exitCode": behaviour.check_exit,
                "message": behaviour.check_message,
                "finishedAt": at,
            }
            if pod["spec"].get("initContainers"):
                status["initContainerStatuses"] = [
                    {"name": "check-env", "state": {"terminated": ended}}
                ]
        passed = behaviour.check_exit == 0 or not pod["spec"].get("initContainers")
        is_ready = passed and behaviour.ready
        known = {c["type"]: c for c in status.get("conditions", [])}
        ready = "True" if is_ready else "False"
        if known.get("Ready", {}).get("status") != ready:
            status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": at}]
        if passed:
            status["containerStatuses"] = [
                {"name": "engine", "started": True, "state": {"running": {}}}
            ]
        if status != before:
            self.put("pods", pod)

    def _endpoints(self) -> None:
        if self.get("services", "chat") is None:
            return
        endpoints = [
            {
                "addresses": [pod["status"]["podIP"]],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]},
            }
            for pod in self.all("pods")
            if _serves(pod)
        ]
        labels = {"kubernetes.io/service-name": "chat"}
        self.put(
            "endpointslices",
            {"metadata": {"name": "chat-1", "labels": labels}, "endpoints": endpoints},
        )

    def _engine(self, request: web.Request) -> EngineState:
        assert request.transport is not None
        return self.engines[request.transport.get_extra_info("sockname")[0]]

    async def _metrics(self, request: web.Request) -> web.Response:
        state = self._engine(request)
        lines = [
            f'rampway_requests_total{{outcome="ok"}} {state.requests}',
            'rampway_requests_total{outcome="error"} 0',
            f"rampway_prompt_tokens_total {state.prompt}",
            f"rampway_cached_tokens_total {state.cached}",
        ]
        for name in ("ttft", "inter_token_latency", "e2e_latency"):
            pairs = zip(EDGES, state.buckets, strict=True)
            lines += [f'rampway_{name}_seconds_bucket{{le="{edge}"}} {n}' for edge, n in pairs]
            lines += [
                f"rampway_{name}_seconds_sum 1",
                f"rampway_{name}_seconds_count {state.requests}",
            ]
        return web.Response(text="\n".join(lines) + "\n")

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "tiny"}]})

    async def _complete(self, request: web.Request) -> web.Response:
        state = self._engine(request)
        behaviour = self.behaviour(state.image)
        if not behaviour.answers:
            return web.Response(status=500)
        cached = round(100 * behaviour.hit_rate)
        usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": cached}}
        return web.json_response({"choices": [{"text": "x"}], "usage": usage})


async def background_work() -> None:
    """Returns when the smoke requests and warm-up slices in progress have ended."""
    names = ("smoke", "warm-up")
    tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith(names)]
    await asyncio.gather(*tasks, return_exceptions=True)


def _serves(pod: Object) -> bool:
    conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
    return pod["metadata"]["labels"].get(ROTATION) == "true" and conditions.get("Ready") == "True"


KEY = Key("prod", "chat")


async def look(cluster: FakeCluster, reconciler: Reconciler, *, requests: int = 40) -> float | None:
    """One look, then everything that follows from it, then the time until the next look."""
    again = await reconciler.reconcile(KEY)
    await background_work()
    cluster.settle()
    cluster.advance(max(again or 0.0, 0.5), requests=requests)
    return again


async def until(
    cluster: FakeCluster,
    reconciler: Reconciler,
    phase: str,
    *,
    looks: int = 400,
    requests: int = 40,
) -> int:
    """Looks until the phase is reached; returns how many it took."""
    for number in range(looks):
        await look(cluster, reconciler, requests=requests)
        if cluster.status.get("phase") == phase:
            return number + 1
    raise AssertionError(f"phase {phase} not reached: {cluster.status}")
