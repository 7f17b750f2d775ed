"""A small cluster in memory, in virtual time: one namespace with one InferenceDeployment in it.

It does what an API server and its controllers do: schedules, runs init containers and probes, publishes
endpoints with a delay, scales down by deletion cost, and counts requests. It knows nothing of rollouts.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from math import exp, log
from statistics import NormalDist
from typing import Any

from rampway_operator.core import names
from rampway_operator.core.actions import (
    Action,
    ClearCommand,
    CreateObject,
    DeleteObject,
    DeletePod,
    LabelPod,
    PatchPodDisruptionBudget,
    PatchReplicaSet,
    PatchReport,
    SendSmoke,
    SendWarmup,
)
from rampway_operator.core.config_refs import config_digests
from rampway_operator.core.objects import replica_set_patch
from rampway_operator.core.observed import (
    Arm,
    ArmWindow,
    CheckState,
    Histogram,
    InitCheck,
    Observed,
    Pod,
    Pool,
    ReplicaSet,
    ScrapeStatus,
    WarmupProgress,
    Window,
)
from rampway_operator.core.parse import parse
from rampway_operator.core.revision import revision_hash
from rampway_operator.core.spec import Spec
from rampway_operator.core.state import Phase, State
from rampway_operator.core.status import state_from_status
from rampway_operator.core.windows import NOTHING

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
EDGES = (*(0.05 * 1.1**i for i in range(60)), float("inf"))


@dataclass
class Behaviour:
    """How the pods of one image behave."""

    check_exit: int = 0
    check_seconds: float = 2.0
    check_message: str = ""
    bad_nodes: frozenset[str] = frozenset()
    """Nodes on which the check blames the node."""
    start_seconds: float = 10.0
    crashes: bool = False
    """The engine dies at once, again and again."""
    smoke_fails: bool = False
    ttft: float = 1.0
    """Factor on the time to first token."""
    hit_rate: float = 0.8
    error_rate: float = 0.0


@dataclass
class WorldPod:
    """One pod, with what happens to it."""

    name: str
    uid: str
    hash: str
    pool: Pool
    labels: dict[str, str]
    image: str
    created_at: datetime
    rv: int
    node: str | None = None
    checks: bool = True
    cost: int = 0
    deleting: bool = False
    deleted_at: datetime | None = None
    killed: bool = False
    """Made unready from outside."""
    restarts: int = 0
    ready_since: datetime | None = None


@dataclass
class WorldSet:
    """One ReplicaSet as it was created."""

    manifest: dict[str, Any]
    uid: str
    rv: int
    failure: str = ""


@dataclass
class Cluster:
    """One namespace with one InferenceDeployment in it."""

    spec: dict[str, Any]
    seed: int = 0
    nodes: tuple[str, ...] = ("n1", "n2", "n3", "n4")
    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    route_seconds: float = 3.0
    """Until a labelled pod gets traffic; longer than leaving takes, as it is at worst."""
    leave_seconds: float = 1.0
    requests_per_window: float = 400.0
    now: datetime = START
    generation: int = 1
    status: dict[str, Any] = field(default_factory=lambda: {"observedGeneration": -1})
    command: str | None = None
    sets: dict[str, WorldSet] = field(default_factory=dict)
    pods: dict[str, WorldPod] = field(default_factory=dict)
    services: dict[str, dict[str, Any]] = field(default_factory=dict)
    config_maps: dict[str, dict[str, Any]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The user's own ConfigMaps that configRefs may name."""
    budget: dict[str, Any] | None = None
    foreign: tuple[str, ...] = ()
    smoked: set[str] = field(default_factory=set)
    smoke_errors: dict[str, str] = field(default_factory=dict)
    warmup_pods: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    warmup: WarmupProgress = field(default_factory=WarmupProgress)
    routed: dict[str, datetime] = field(default_factory=dict)
    pending: dict[str, datetime] = field(default_factory=dict)
    """Pods whose endpoint does not agree with their label yet, since when."""
    frozen_routes: bool = False
    scrape_error: str = ""
    missing_metrics: tuple[str, ...] = ()
    capacity: int = 1000
    quota: int | None = None
    counter: int = 0
    rv: int = 100
    last_window: datetime = START
    log: list[str] = field(default_factory=list)
    parsed_at: int = -1
    """Generation that `known` is of."""
    creates: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    # --- what people do -----------------------------------------------------------------------

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the spec as an editor does."""
        before = copy.deepcopy(self.spec)
        change(self.spec)
        if before != self.spec:
            self.generation += 1

    def set_image(self, image: str) -> None:
        self.edit(lambda spec: spec["engine"].update(image=image))

    def give(self, verb: str, nonce: str = "1") -> None:
        """Write a command as the kubectl plugin does."""
        state = self.state
        rollout = state.rollout
        hash_ = rollout.candidate.hash if rollout is not None else self.spec_hash
        index = rollout.step_index if rollout is not None else 0
        self.command = f"{verb}/{hash_}/{index}#{nonce}"

    # --- what can be seen ---------------------------------------------------------------------

    @property
    def raw(self) -> dict[str, Any]:
        return {"metadata": {"name": "chat", "namespace": "prod"}, "spec": self.spec}

    @property
    def parsed(self) -> Spec:
        if self.parsed_at != self.generation:
            self.known, self.parsed_at = (parse(self.raw), revision_hash(self.raw)), self.generation
        return self.known[0]

    @property
    def spec_hash(self) -> str:
        if self.spec.get("configRefs"):
            return revision_hash(self.raw, config_digests(self.parsed.config_refs, self.configs))
        return self.known[1] if self.parsed_at == self.generation else revision_hash(self.raw)

    @property
    def state(self) -> State:
        return state_from_status(self.status)

    @property
    def phase(self) -> Phase:
        return self.state.phase

    def image_hash(self, image: str) -> str:
        spec = copy.deepcopy(self.spec)
        spec["engine"]["image"] = image
        return revision_hash({"spec": spec})

    def live(self, hash_: str | None = None, pool: Pool = Pool.MAIN) -> list[WorldPod]:
        return [
            p
            for p in self.pods.values()
            if not p.deleting and (hash_ is None or (p.hash == hash_ and p.pool is pool))
        ]

    def behaviour(self, pod: WorldPod) -> Behaviour:
        return self.behaviours.get(pod.image, Behaviour())

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.status["conditions"] if c["type"] == kind)

    def check_state(self, pod: WorldPod) -> InitCheck | None:
        if not pod.checks:
            return None
        how, started = self.behaviour(pod), pod.created_at + timedelta(seconds=1)
        if pod.node is None or self.now < started:
            return InitCheck(CheckState.WAITING, waiting_reason="PodInitializing")
        ended = started + timedelta(seconds=how.check_seconds)
        if self.now < ended:
            return InitCheck(CheckState.RUNNING, started_at=started)
        code = 11 if pod.node in how.bad_nodes else how.check_exit
        if code == 0:
            passed = json.dumps({"v": 1, "class": "Pass", "failed": []})
            return InitCheck(CheckState.PASSED, 0, passed, finished_at=ended)
        message = how.check_message or json.dumps(
            {
                "v": 1,
                "class": "x",
                "failed": [
                    {
                        "check": "libstdc++",
                        "found": "3.4.25",
                        "required": ">=3.4.30",
                        "remedy": "newer base image",
                    }
                ],
            }
        )
        return InitCheck(CheckState.FAILED, code, message, finished_at=ended)

    def is_ready(self, pod: WorldPod) -> bool:
        check = self.check_state(pod)
        if pod.killed or pod.deleting or self.behaviour(pod).crashes or pod.node is None:
            return False
        if check is not None and check.state is not CheckState.PASSED:
            return False
        begun = check.finished_at if check is not None and check.finished_at else pod.created_at
        return self.now >= begun + timedelta(seconds=self.behaviour(pod).start_seconds)

    def serving(self) -> list[WorldPod]:
        """Pods that the alias Service sends requests to and that can answer."""
        return [p for p in self.pods.values() if p.name in self.routed and self.is_ready(p)]

    def observe(self) -> Observed:
        return Observed(
            name="chat",
            namespace="prod",
            uid="cr-uid",
            generation=self.generation,
            resource_version=str(self.rv),
            spec_hash=self.spec_hash,
            state=self.state,
            command=self.command,
            replica_sets=tuple(self._seen_set(n, s) for n, s in sorted(self.sets.items())),
            pods=tuple(self._seen_pod(p) for p in self.pods.values()),
            services=frozenset(self.services),
            config_maps=frozenset(self.config_maps),
            configs=copy.deepcopy(self.configs),
            reports={
                name: annotations[names.ANNOTATION_REPORT]
                for name, manifest in self.config_maps.items()
                if names.ANNOTATION_REPORT
                in (annotations := manifest["metadata"].get("annotations") or {})
            },
            uids={f"Service/{n}": f"u-{n}" for n in self.services}
            | {f"ConfigMap/{n}": f"u-{n}" for n in self.config_maps},
            pod_disruption_budget=self._seen_budget(),
            routed=frozenset(self.routed),
            foreign=self.foreign,
            smoked=frozenset(self.smoked),
            smoke_errors=dict(self.smoke_errors),
            warmup=self.warmup,
            windows=self._windows(),
            scrape=ScrapeStatus(error=self.scrape_error, missing_metrics=self.missing_metrics),
        )

    def _seen_set(self, name: str, item: WorldSet) -> ReplicaSet:
        m, template = item.manifest, item.manifest["spec"]["template"]
        labels = template["metadata"]["labels"]
        avoided = m["metadata"]["annotations"].get(names.ANNOTATION_AVOIDED_NODES, "")
        return ReplicaSet(
            name=name,
            uid=item.uid,
            hash=m["metadata"]["labels"][names.LABEL_REVISION],
            pool=Pool(m["metadata"]["labels"][names.LABEL_POOL]),
            resource_version=str(item.rv),
            replicas=m["spec"]["replicas"],
            template_arm=Arm(labels[names.LABEL_ARM]),
            template_in_rotation=labels.get(names.LABEL_ROTATION) == "true",
            template_avoided_nodes=tuple(n for n in avoided.split(",") if n),
            failure=item.failure,
            number=int(m["metadata"]["annotations"].get(names.ANNOTATION_NUMBER, "0")),
            image=template["spec"]["containers"][0]["image"],
            template=template,
        )

    def _seen_pod(self, pod: WorldPod) -> Pod:
        crashes = self.behaviour(pod).crashes
        check = self.check_state(pod)
        started = check is None or check.state is CheckState.PASSED
        return Pod(
            name=pod.name,
            uid=pod.uid,
            hash=pod.hash,
            pool=pod.pool,
            resource_version=str(pod.rv),
            created_at=pod.created_at,
            arm=Arm(pod.labels[names.LABEL_ARM]) if names.LABEL_ARM in pod.labels else None,
            node=pod.node,
            ip=f"10.0.0.{pod.uid}" if pod.node else None,
            ready=self.is_ready(pod),
            ready_since=pod.ready_since,
            deleting=pod.deleting,
            in_rotation=pod.labels.get(names.LABEL_ROTATION) == "true",
            check=check,
            engine_started=started,
            engine_restarts=pod.restarts,
            engine_waiting_reason="CrashLoopBackOff" if crashes and pod.restarts else "",
            engine_last_exit="Error 1: no" if pod.restarts else "",
            unschedulable="" if pod.node else "0/4 nodes are available",
        )

    def _seen_budget(self) -> tuple[str, str] | None:
        if self.budget is None:
            return None
        chosen = self.budget["spec"]["selector"]["matchLabels"][names.LABEL_REVISION]
        return chosen, str(self.budget["spec"]["maxUnavailable"])

    # --- metrics ------------------------------------------------------------------------------

    def _windows(self) -> tuple[Window, ...]:
        """One paired window every `interval`, from the pods that serve now."""
        interval = self.parsed.analysis.interval
        rollout = self.state.rollout
        if rollout is None or self.now - self.last_window < interval or self.scrape_error:
            return ()
        by_arm: dict[str, list[WorldPod]] = {}
        for pod in self.serving():
            by_arm.setdefault(pod.labels.get(names.LABEL_ARM, ""), []).append(pod)
        begun, self.last_window = self.last_window, self.now
        blue_green = self.parsed.blue_green is not None
        if blue_green and "candidate" not in by_arm and rollout.verified_weight == 0:
            preview = [p for p in self.live(rollout.candidate.hash) if self.is_ready(p)]
            by_arm |= {"candidate": preview} if preview else {}
        if not blue_green and "candidate" not in by_arm:
            return ()
        if not by_arm or self.requests_per_window == 0:
            return ()
        arms = {arm: self._arm_window(pods) for arm, pods in by_arm.items()}
        return (
            Window(
                started_at=begun,
                ended_at=self.now,
                candidate=arms.get("candidate", NOTHING),
                baseline=arms.get("baseline"),
                stable=arms.get("stable"),
            ),
        )

    def _arm_window(self, pods: list[WorldPod]) -> ArmWindow:
        how = self.behaviour(pods[0])
        count = int(self.requests_per_window) * len(pods)
        counts = [float(self._draw(count * share)) for share in _shares(how.ttft)]
        histogram = Histogram(EDGES, tuple(counts))
        errors = float(min(count, self._draw(count * how.error_rate)))
        prompt = 600.0 * count
        hits = min(1.0, max(0.0, how.hit_rate + self.random.gauss(0, 0.005)))
        return ArmWindow(
            pods=len(pods),
            requests=float(count),
            errors=errors,
            prompt_tokens=prompt,
            cached_tokens=prompt * hits,
            ttft=histogram,
            inter_token=histogram,
            e2e=histogram,
        )

    def _draw(self, mean: float) -> int:
        """About a Poisson number."""
        if mean > 20:
            return max(0, round(self.random.gauss(mean, mean**0.5)))
        limit, product, number = exp(-mean), self.random.random(), 0
        while product > limit:
            product, number = product * self.random.random(), number + 1
        return number

    # --- actions ------------------------------------------------------------------------------

    def act(self, spec: Spec, action: Action) -> None:
        """Carry out one action as the API server would; a stale resourceVersion is a fault of the test."""
        match action:
            case CreateObject():
                self._create(action)
            case DeleteObject():
                self._delete(action)
            case PatchReplicaSet():
                item = self.sets[action.name]
                assert str(item.rv) == action.resource_version, "conflict"
                _merge(item.manifest, replica_set_patch(spec, action))
                item.rv = self._next_rv()
            case LabelPod():
                self._label(action)
            case DeletePod():
                assert self.pods[action.name].uid == action.uid
                self.kill(self.pods[action.name])
            case PatchPodDisruptionBudget():
                assert self.budget is not None
                self.budget["spec"]["selector"]["matchLabels"] = action.selector
                self.budget["spec"]["maxUnavailable"] = action.max_unavailable
            case PatchReport():
                held = self.config_maps[action.name]
                held["data"] = {**held["data"], **action.reports}
                held["metadata"]["annotations"][names.ANNOTATION_REPORT] = action.digest
            case ClearCommand():
                self.command = None if self.command == action.value else self.command
            case SendSmoke():
                self._smoke(action)
            case SendWarmup():
                self._warm(action)
        self.log.append(f"{self.now:%H:%M:%S} {action}"[:160])

    def _label(self, action: LabelPod) -> None:
        pod = self.pods[action.name]
        assert str(pod.rv) == action.resource_version, "conflict"
        pod.labels[names.LABEL_ARM] = action.arm.value
        pod.labels.pop(names.LABEL_ROTATION, None)
        if action.in_rotation:
            pod.labels[names.LABEL_ROTATION] = "true"
        pod.cost, pod.rv = action.deletion_cost, self._next_rv()

    def _smoke(self, action: SendSmoke) -> None:
        if self.behaviour(self.pods[action.pod_name]).smoke_fails:
            self.smoke_errors[action.pod_uid] = "500: no token"
        else:
            self.smoked.add(action.pod_uid)

    def _create(self, action: CreateObject) -> None:
        manifest = copy.deepcopy(action.manifest)
        owner = manifest["metadata"]["ownerReferences"][0]
        assert (owner["uid"], owner["controller"]) == ("cr-uid", True)
        assert manifest["metadata"]["name"] == action.name
        assert len(action.name) <= 63
        self.creates.append(f"{action.kind}/{action.name}")
        match action.kind:
            case "ReplicaSet":
                chosen = manifest["spec"]["selector"]["matchLabels"]
                labels = manifest["spec"]["template"]["metadata"]["labels"]
                assert chosen.items() <= labels.items(), "the selector must match the template"
                self.sets.setdefault(action.name, WorldSet(manifest, self._uid(), self._next_rv()))
            case "Service":
                self.services.setdefault(action.name, manifest)
            case "ConfigMap":
                self.config_maps.setdefault(action.name, manifest)
            case "PodDisruptionBudget":
                self.budget = self.budget or manifest
            case _:
                raise AssertionError(action.kind)

    def _delete(self, action: DeleteObject) -> None:
        match action.kind:
            case "ReplicaSet":
                item = self.sets.get(action.name)
                if item is not None and item.uid == action.uid:
                    del self.sets[action.name]
                    labels = item.manifest["spec"]["selector"]["matchLabels"]
                    for pod in self.live(
                        labels[names.LABEL_REVISION], Pool(labels[names.LABEL_POOL])
                    ):
                        self.kill(pod)
            case "Service":
                self.services.pop(action.name, None)
            case "ConfigMap":
                self.config_maps.pop(action.name, None)
            case _:
                raise AssertionError(action.kind)

    def _warm(self, action: SendWarmup) -> None:
        pods = (action.candidate_ips, action.baseline_ips)
        if self.warmup_pods != pods:
            self.warmup_pods, self.warmup = pods, WarmupProgress(pods=pods, prompts=20)
        self.warmup = replace(
            self.warmup,
            requests_sent=self.warmup.requests_sent + 20 * (len(pods[0]) + len(pods[1])),
            candidate_rounds=_round(self.warmup.candidate_rounds, pods[0]),
            baseline_rounds=_round(self.warmup.baseline_rounds, pods[1]),
        )

    # --- the cluster --------------------------------------------------------------------------

    def _next_rv(self) -> int:
        self.rv += 1
        return self.rv

    def _uid(self) -> str:
        self.counter += 1
        return str(self.counter)

    def kill(self, pod: WorldPod) -> None:
        """Begin to delete a pod; it leaves the endpoints and is gone a little later."""
        pod.deleting, pod.deleted_at = True, self.now
        self.routed.pop(pod.name, None)

    def advance(self, seconds: float) -> None:
        """Let time pass and the controllers act."""
        self.now += timedelta(seconds=seconds)
        self._reap()
        self._scale()
        self._schedule()
        self._restart()
        self._route()

    def _reap(self) -> None:
        for name, pod in list(self.pods.items()):
            if pod.deleted_at is not None and self.now - pod.deleted_at > timedelta(seconds=3):
                del self.pods[name]

    def _scale(self) -> None:
        for name, item in self.sets.items():
            labels = item.manifest["spec"]["selector"]["matchLabels"]
            pods = self.live(labels[names.LABEL_REVISION], Pool(labels[names.LABEL_POOL]))
            wanted = item.manifest["spec"]["replicas"]
            item.failure = ""
            for _ in range(wanted - len(pods)):
                if self.quota is not None and len(self.live()) >= self.quota:
                    item.failure = "exceeded quota: gpus"
                    break
                self._add_pod(name, item)
            surplus = sorted(
                pods, key=lambda p: (self.is_ready(p), p.cost, -p.created_at.timestamp())
            )
            for pod in surplus[: max(0, len(pods) - wanted)]:
                self.kill(pod)

    def _add_pod(self, name: str, item: WorldSet) -> None:
        template, uid = item.manifest["spec"]["template"], self._uid()
        labels = dict(template["metadata"]["labels"])
        self.pods[f"{name}-{uid}"] = WorldPod(
            name=f"{name}-{uid}",
            uid=uid,
            hash=labels[names.LABEL_REVISION],
            pool=Pool(labels[names.LABEL_POOL]),
            labels=labels,
            image=template["spec"]["containers"][0]["image"],
            created_at=self.now,
            rv=self._next_rv(),
            checks=bool(template["spec"].get("initContainers")),
        )
        if template["spec"].get("initContainers"):
            config_map = next(
                v["configMap"]["name"]
                for v in template["spec"]["volumes"]
                if v["name"] == "rampway-check-env"
            )
            assert config_map in self.config_maps, "the check must be there before the pod"

    def _schedule(self) -> None:
        for pod in self.pods.values():
            if pod.node is None and not pod.deleting:
                placed = sum(p.node is not None and not p.deleting for p in self.pods.values())
                item = next((s for n, s in self.sets.items() if pod.name.startswith(f"{n}-")), None)
                free = [n for n in self.nodes if n not in _avoided(item)]
                if free and placed < self.capacity:
                    pod.node = free[int(pod.uid) % len(free)]

    def _restart(self) -> None:
        for pod in self.live():
            check = self.check_state(pod)
            running = check is None or check.state is CheckState.PASSED
            if self.behaviour(pod).crashes and running and pod.node:
                age = (self.now - pod.created_at).total_seconds()
                pod.restarts = max(pod.restarts, int(age // 20))
            if self.is_ready(pod):
                pod.ready_since = pod.ready_since or self.now
            else:
                pod.ready_since = None

    def _route(self) -> None:
        if self.frozen_routes:
            return
        for pod in self.pods.values():
            labelled = pod.labels.get(names.LABEL_ROTATION) == "true" and "chat" in self.services
            inside, ready = pod.name in self.routed, self.is_ready(pod)
            if inside and not ready:
                del self.routed[pod.name]  # the kubelet's news travel as fast as ours
                continue
            if inside is (labelled and ready):
                self.pending.pop(pod.name, None)
                continue
            since = self.pending.setdefault(pod.name, self.now)
            delay = self.leave_seconds if inside else self.route_seconds
            if self.now - since >= timedelta(seconds=delay):
                del self.pending[pod.name]
                if inside:
                    del self.routed[pod.name]
                else:
                    self.routed[pod.name] = self.now
        for name in list(self.routed):
            if name not in self.pods:
                del self.routed[name]

    @property
    def moving(self) -> bool:
        """Whether something changes by itself within seconds: then events wake the operator."""
        asked = sum(s.manifest["spec"]["replicas"] for s in self.sets.values())
        return asked != len(self.live()) or any(
            p.deleting
            or not self.is_ready(p)
            or (p.labels.get(names.LABEL_ROTATION) == "true") != (p.name in self.routed)
            for p in self.pods.values()
        )


@cache
def _shares(factor: float) -> tuple[float, ...]:
    """The share of requests in each bucket: times to first token are lognormal."""
    spread = NormalDist(log(0.3 * factor), 0.4)
    below = [spread.cdf(log(edge)) if edge != float("inf") else 1.0 for edge in EDGES]
    return tuple(b - a for a, b in zip((0.0, *below), below, strict=False))


def _round(rounds: tuple[float, ...], ips: tuple[str, ...]) -> tuple[float, ...]:
    if not ips:
        return rounds
    return (*rounds, 0.8 * (1 - 0.5 ** (len(rounds) * 2)))


def _avoided(item: WorldSet | None) -> set[str]:
    if item is None:
        return set()
    affinity = item.manifest["spec"]["template"]["spec"].get("affinity", {})
    terms = affinity.get("nodeAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", {}
    )
    found = set()
    for term in terms.get("nodeSelectorTerms", []):
        for expression in term["matchExpressions"]:
            if expression["operator"] == "NotIn":
                found |= set(expression["values"])
    return found


def _merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7396."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            inner = target.setdefault(key, {})
            _merge(inner, value)
        elif key != "resourceVersion":
            target[key] = value
