"""What the cluster looked like in one tick, as plain data: the single input of every decision.

It does not know how it was read; `cluster/observe.py` gathers it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from rampway_operator.core.state import State

__all__ = [
    "Arm",
    "ArmWindow",
    "CheckState",
    "Histogram",
    "InitCheck",
    "Observed",
    "Pod",
    "Pool",
    "ReplicaSet",
    "ScrapeStatus",
    "WarmupProgress",
    "Window",
]


class Arm(StrEnum):
    """Which part a pod plays in the rollout now; a label that moves when the part changes."""

    STABLE = "stable"
    CANDIDATE = "candidate"
    BASELINE = "baseline"


class Pool(StrEnum):
    """The immutable half of a pod's identity: a revision's own pods, or its baseline copies.

    ReplicaSet selectors cannot change, an arm can: so selectors use the pool.
    """

    MAIN = "main"
    BASELINE = "baseline"


class CheckState(StrEnum):
    """Where a pod's check-env init container stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class InitCheck:
    """The check-env container of one pod; exit code and message are those of its last run."""

    state: CheckState
    exit_code: int | None = None
    message: str = ""
    """The termination message: check_env's compact JSON, or the tail of its log."""
    finished_at: datetime | None = None
    started_at: datetime | None = None
    """When the running check began; None when it does not run."""
    waiting_reason: str = ""
    """For example ErrImagePull; empty when it is not waiting."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod whose controller chain is ours."""

    name: str
    uid: str
    hash: str
    pool: Pool
    resource_version: str
    created_at: datetime
    arm: Arm | None = None
    node: str | None = None
    ip: str | None = None
    ready: bool = False
    ready_since: datetime | None = None
    deleting: bool = False
    in_rotation: bool = False
    check: InitCheck | None = None
    """None when preflight is off."""
    engine_started: bool = False
    engine_restarts: int = 0
    engine_waiting_reason: str = ""
    """CrashLoopBackOff, ErrImagePull, ...; empty when it is not waiting."""
    engine_last_exit: str = ""
    """Reason, exit code and termination message of the engine's last death."""
    unschedulable: str = ""
    """The scheduler's message when the pod fits nowhere."""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """One ReplicaSet that we own."""

    name: str
    uid: str
    hash: str
    pool: Pool
    resource_version: str
    replicas: int
    template_arm: Arm | None = None
    template_in_rotation: bool = False
    template_avoided_nodes: tuple[str, ...] = ()
    failure: str = ""
    """Message of the ReplicaFailure condition (quota, admission); empty when it has none."""
    number: int = 0
    """The revision number, kept as an annotation so that lost status can be rebuilt."""
    image: str = ""
    template: dict[str, Any] = field(default_factory=dict)
    """`spec.template` as read: the baseline's pods are made from the stable revision's, whatever the spec says now."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bucket counts of one window: `edges[i]` is the upper edge (seconds) of `counts[i]`, the last is +inf."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    """Not cumulative."""

    @property
    def total(self) -> float:
        """The number of observations."""
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class ArmWindow:
    """What one arm did in one window, summed over its pods; None where the engine has no such metric."""

    pods: int
    requests: float
    errors: float | None
    prompt_tokens: float | None
    cached_tokens: float | None
    ttft: Histogram | None
    inter_token: Histogram | None
    e2e: Histogram | None


@dataclass(frozen=True, slots=True)
class Window:
    """One paired window: both arms over the same span. A window that saw a restart, a counter reset, a
    changed set of pods or a gap is never built; the shell drops it and says why in `ScrapeStatus`.
    """

    started_at: datetime
    ended_at: datetime
    candidate: ArmWindow
    baseline: ArmWindow | None
    stable: ArmWindow | None


@dataclass(frozen=True, slots=True)
class ScrapeStatus:
    """How the metrics source did in this tick."""

    error: str = ""
    """Why a due scrape failed; empty when it worked or none was due."""
    dropped: str = ""
    """Why the last window was dropped; empty when it was kept."""
    missing_metrics: tuple[str, ...] = ()
    """Metrics that a live scrape of this engine does not have though an objective needs them."""


@dataclass(frozen=True, slots=True)
class WarmupProgress:
    """How far the warm-up of the current candidate is, by arm; kept in memory only: replaying is harmless.

    It counts for one set of pods: when SendWarmup names other IPs than before, it starts again at zero.
    """

    pods: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """The candidate and baseline IPs of the SendWarmup that this counts for."""
    requests_sent: int = 0
    failures: int = 0
    last_error: str = ""
    candidate_rounds: tuple[float, ...] = ()
    """Token hit rate of each completed round over the prompt set."""
    baseline_rounds: tuple[float, ...] = ()
    prompts: int = 0
    """Size of the prompt set; 0 when there is none."""
    prompts_error: str = ""
    """Why the prompt set cannot be used (ConfigMap missing, bad line); empty when it can."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One tick's reading of one InferenceDeployment and everything around it."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    spec_hash: str
    """Revision hash of the spec as it is now."""
    state: State
    command: str | None = None
    """The rampway.dev/command annotation, as written."""
    replica_sets: tuple[ReplicaSet, ...] = ()
    pods: tuple[Pod, ...] = ()
    services: frozenset[str] = frozenset()
    """Names of our Services that exist."""
    config_maps: frozenset[str] = frozenset()
    """Names of our ConfigMaps that exist."""
    reports: dict[str, str] = field(default_factory=dict)
    """Digest of what was written last, by the name of each report ConfigMap of ours."""
    uids: dict[str, str] = field(default_factory=dict)
    """`Kind/name` of our Services and ConfigMaps to their UID: what is not in here is never deleted."""
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Content (`data`, `binaryData`) of the ConfigMaps of spec.configRefs that exist, by name."""
    pod_disruption_budget: tuple[str, str] | None = None
    """(revision hash it selects, maxUnavailable) of our PodDisruptionBudget."""
    routed: frozenset[str] = frozenset()
    """Names of pods that the alias Service's EndpointSlices send traffic to now."""
    foreign: tuple[str, ...] = ()
    """`Kind/name` of objects that have a name of ours but another owner."""
    smoked: frozenset[str] = frozenset()
    """UIDs of pods that have answered a real request."""
    smoke_errors: dict[str, str] = field(default_factory=dict)
    """Pod UID to why its last smoke request failed."""
    warmup: WarmupProgress = WarmupProgress()
    windows: tuple[Window, ...] = ()
    """Paired windows completed since the last tick, oldest first; already folded ones never come again."""
    scrape: ScrapeStatus = ScrapeStatus()
