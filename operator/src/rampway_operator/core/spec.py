"""What a user asked for: the typed mirror of `spec` in crds/inferencedeployments.yaml.

It knows neither the cluster nor what has happened so far. `parse.py` builds it and reports every fault.
Defaults here equal the defaults of the CRD's schema; test_crd_contract holds them together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any

__all__ = [
    "Against",
    "Analysis",
    "AnalysisMode",
    "AnalysisStep",
    "BlueGreen",
    "Canary",
    "Comparison",
    "ConfigRef",
    "Engine",
    "EngineType",
    "ErrorRates",
    "Gateway",
    "Health",
    "Metric",
    "Objective",
    "OnBadNode",
    "OnChange",
    "OnFailure",
    "OnInfrastructure",
    "OnUndecided",
    "PauseStep",
    "Preflight",
    "PreflightFailurePolicy",
    "PreflightMode",
    "Require",
    "SetWeightStep",
    "Spec",
    "Step",
    "Traffic",
    "Warmup",
    "WarmupStep",
]


class EngineType(StrEnum):
    """Which engine runs in the pods; selects the names of its metrics and its warm-up calls."""

    RAMPWAY = "Rampway"
    VLLM = "VLLM"
    SGLANG = "SGLang"
    TENSORRT_LLM = "TensorRTLLM"


class PreflightMode(StrEnum):
    """Whether a failed check stops a revision, is only reported, or is not run."""

    ENFORCE = "Enforce"
    WARN = "Warn"
    OFF = "Off"


class AnalysisMode(StrEnum):
    """Whether verdicts act on the rollout or are only recorded."""

    ENFORCE = "Enforce"
    PREVIEW = "Preview"


class OnUndecided(StrEnum):
    """What to do when an analysis step reaches `maxDuration` without a verdict."""

    PAUSE = "Pause"
    ABORT = "Abort"
    PROCEED = "Proceed"


class OnBadNode(StrEnum):
    """What a check that blames the node leads to."""

    AVOID_NODE = "AvoidNode"
    ROLLBACK = "Rollback"


class OnInfrastructure(StrEnum):
    """What a check that could not run leads to."""

    HOLD = "Hold"
    ROLLBACK = "Rollback"


class OnFailure(StrEnum):
    """What to do when a blocking objective fails."""

    ABORT = "Abort"
    PAUSE = "Pause"


class Metric(StrEnum):
    """What an objective measures; every one is a ratio of sums per window and arm."""

    TTFT = "TTFT"
    INTER_TOKEN_LATENCY = "InterTokenLatency"
    E2E_LATENCY = "E2ELatency"
    PREFIX_CACHE_HIT_RATE = "PrefixCacheHitRate"
    ERROR_RATE = "ErrorRate"


class Against(StrEnum):
    """Which arm a candidate is compared with."""

    BASELINE = "Baseline"
    STABLE = "Stable"


class Require(StrEnum):
    """What promotion needs of an objective: proof that it is fine, or no proof that it is not."""

    PASS = "Pass"
    NOT_FAIL = "NotFail"


@dataclass(frozen=True, slots=True)
class Health:
    """HTTP paths of the engine's probes, and how long it may take to start."""

    readiness: str = "/readyz"
    liveness: str = "/livez"
    startup_timeout: timedelta = timedelta(minutes=20)


@dataclass(frozen=True, slots=True)
class Engine:
    """The serving container. Kubernetes-shaped parts stay plain data, as the user wrote them."""

    image: str
    type: EngineType = EngineType.RAMPWAY
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[dict[str, Any], ...] = ()
    port: int = 8000
    metrics_port: int | None = None
    """None: `9400` for Rampway, the serving port for other engines."""
    metrics_path: str = "/metrics"
    health: Health = Health()
    resources: dict[str, Any] = field(default_factory=dict)
    resource_claims: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    pod_labels: dict[str, str] = field(default_factory=dict)
    pod_annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[dict[str, Any], ...] = ()
    affinity: dict[str, Any] = field(default_factory=dict)
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    runtime_class_name: str = ""
    priority_class_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    termination_grace_period_seconds: int = 120
    shared_memory: str = "1Gi"
    """Size of /dev/shm as a Kubernetes quantity."""

    @property
    def scrape_port(self) -> int:
        """The port that serves metrics."""
        if self.metrics_port is not None:
            return self.metrics_port
        return 9400 if self.type is EngineType.RAMPWAY else self.port


@dataclass(frozen=True, slots=True)
class PreflightFailurePolicy:
    """Bounds on what a failed check may cost before the rollout is given up."""

    bad_node: OnBadNode = OnBadNode.AVOID_NODE
    infrastructure: OnInfrastructure = OnInfrastructure.HOLD
    max_avoided_nodes: int = 2
    retries: int = 1


@dataclass(frozen=True, slots=True)
class Preflight:
    """The environment check that every pod passes before it may serve."""

    mode: PreflightMode = PreflightMode.ENFORCE
    requirements: dict[str, Any] = field(default_factory=dict)
    """Passed to check_env as JSON; check_env refuses names it does not know."""
    on_failure: PreflightFailurePolicy = PreflightFailurePolicy()
    timeout: timedelta = timedelta(minutes=5)
    image: str = ""
    """Image to run the check in when the engine's has no python3; empty: the engine's."""


@dataclass(frozen=True, slots=True)
class Warmup:
    """How a new revision's prefix cache is filled before it is judged."""

    prompt_config_map: str | None = None
    """ConfigMap whose key `prompt_key` holds one request body a line; None skips warm-up."""
    prompt_key: str = "prompts.jsonl"
    max_delta: Decimal = Decimal("0.02")
    """Steady when two rounds' token hit rates differ by at most this."""
    max_requests: int = 2000
    max_duration: timedelta = timedelta(minutes=10)
    on_timeout: OnUndecided = OnUndecided.PAUSE


@dataclass(frozen=True, slots=True)
class Gateway:
    """The provider gatewayAPI: what the operator's HTTPRoute has beside backends and weights."""

    parent_refs: tuple[dict[str, Any], ...]
    hostnames: tuple[str, ...] = ()
    path: str = "/"
    """Prefix of the paths that the route takes."""
    request_timeout: str = ""
    """As Gateway API writes durations; empty: the gateway's own."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """How traffic is moved and verified."""

    gateway: Gateway | None = None
    """None: the provider is the alias Service, whose pods in rotation are the weight."""
    affinity_header: str = ""
    """Header with the session id by which requests stay with a revision; empty: none."""
    verify_max_delay: timedelta = timedelta(seconds=60)
    drain_timeout: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class SetWeightStep:
    """Give the candidate at least this share of traffic, in percent."""

    weight: int


@dataclass(frozen=True, slots=True)
class AnalysisStep:
    """Judge; empty `objectives` means all of them."""

    objectives: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseStep:
    """Wait for `duration`, or for a promote command when it is None."""

    duration: timedelta | None = None


@dataclass(frozen=True, slots=True)
class WarmupStep:
    """Send the warm-up prompts to the pods of the candidate and the baseline that had none yet.

    Where prompts are configured, new pods are warmed before each weight without this step, too; where
    they are not, this step is passed over.
    """


Step = SetWeightStep | AnalysisStep | PauseStep | WarmupStep

DEFAULT_STEPS: tuple[Step, ...] = (
    WarmupStep(),
    SetWeightStep(5),
    AnalysisStep(),
    SetWeightStep(25),
    AnalysisStep(),
    SetWeightStep(50),
    AnalysisStep(),
    SetWeightStep(100),
)


@dataclass(frozen=True, slots=True)
class Canary:
    """The canary strategy. `max_surge` is what the user wrote: a pod count or a percentage.

    A blue-green strategy is carried out as such steps, too: see `BlueGreen.as_steps`.
    """

    steps: tuple[Step, ...] = DEFAULT_STEPS
    max_surge: int | str = "25%"
    max_unavailable: int | str = 0
    baseline: bool = True
    bake: timedelta = timedelta(minutes=10)
    scale_down_delay: timedelta = timedelta(seconds=30)


class OnChange(StrEnum):
    """Whether changed content of a tracked ConfigMap makes a new revision."""

    ROLLOUT = "Rollout"
    IGNORE = "Ignore"


@dataclass(frozen=True, slots=True)
class ConfigRef:
    """A ConfigMap of which each revision gets an immutable copy of its own."""

    name: str
    on_change: OnChange = OnChange.ROLLOUT


@dataclass(frozen=True, slots=True)
class BlueGreen:
    """The blue-green strategy: a preview without traffic, one switch, and a way back while the old one stands."""

    preview_replicas: int | str = "100%"
    """A pod count or a percentage of replicas, rounded up; the switch brings all of them."""
    auto_promote: bool = True
    """False: a person lets the switch happen by a promote command."""
    pre_promotion: tuple[str, ...] = ()
    """Objectives with an absolute limit that the preview must pass before the switch."""
    bake: timedelta = timedelta(minutes=10)
    scale_down_delay: timedelta = timedelta(minutes=30)

    def as_steps(self) -> Canary:
        """The same rollout as steps: warm the preview, judge it, wait for a person, switch everything."""
        judged = (AnalysisStep(self.pre_promotion),) if self.pre_promotion else ()
        asked = () if self.auto_promote else (PauseStep(),)
        return Canary(
            steps=(WarmupStep(), *judged, *asked, SetWeightStep(100)),
            max_surge="100%",
            max_unavailable=0,
            baseline=False,
            bake=self.bake,
            scale_down_delay=self.scale_down_delay,
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """Candidate against a reference arm. Exactly one of the two margins is set."""

    against: Against = Against.BASELINE
    max_regression: Decimal | None = None
    """Relative: 0.25 lets a latency be a quarter higher."""
    max_drop: Decimal | None = None
    """Absolute: 0.05 lets a hit rate be five points lower."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One thing a candidate must hold. At least one of `comparison` and `slo_max` is set."""

    name: str
    metric: Metric
    quantile: Decimal | None = None
    tail: Decimal | None = None
    comparison: Comparison | None = None
    slo_max: Decimal | None = None
    """Seconds for latencies, a share for rates."""
    min_samples: int = 300
    require: Require = Require.PASS
    steady_only: bool = False
    blocking: bool = True


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """The promised error rates of a whole rollout."""

    false_abort: Decimal = Decimal("0.05")
    missed_regression: Decimal = Decimal("0.20")


DEFAULT_OBJECTIVES: tuple[Objective, ...] = (
    Objective(
        name="ttft-tail",
        metric=Metric.TTFT,
        tail=Decimal("0.90"),
        comparison=Comparison(max_regression=Decimal("0.25")),
    ),
    Objective(
        name="ttft-p99",
        metric=Metric.TTFT,
        quantile=Decimal("0.99"),
        comparison=Comparison(max_regression=Decimal("0.25")),
        require=Require.NOT_FAIL,
    ),
    Objective(
        name="hit-rate",
        metric=Metric.PREFIX_CACHE_HIT_RATE,
        comparison=Comparison(max_drop=Decimal("0.05")),
        steady_only=True,
    ),
    Objective(
        name="errors", metric=Metric.ERROR_RATE, slo_max=Decimal("0.005"), require=Require.NOT_FAIL
    ),
)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The objectives and how they are judged."""

    mode: AnalysisMode = AnalysisMode.ENFORCE
    interval: timedelta = timedelta(seconds=15)
    max_duration: timedelta = timedelta(hours=1)
    on_undecided: OnUndecided = OnUndecided.PAUSE
    on_failure: OnFailure = OnFailure.ABORT
    error_rates: ErrorRates = ErrorRates()
    prometheus: str | None = None
    """Name of a Prometheus in the operator's settings; None reads each pod itself."""
    outage_max_duration: timedelta = timedelta(minutes=30)
    outage_after_max: OnFailure = OnFailure.PAUSE
    objectives: tuple[Objective, ...] = DEFAULT_OBJECTIVES


@dataclass(frozen=True, slots=True)
class Spec:
    """One InferenceDeployment as its user wrote it, checked and with defaults."""

    engine: Engine
    replicas: int = 1
    min_ready_seconds: int = 10
    revision_history_limit: int = 3
    progress_deadline: timedelta = timedelta(minutes=30)
    paused: bool = False
    config_refs: tuple[ConfigRef, ...] = ()
    preflight: Preflight = Preflight()
    warmup: Warmup = Warmup()
    traffic: Traffic = Traffic()
    canary: Canary = Canary()
    """The steps of a rollout; those that `blue_green` comes to where it is set."""
    blue_green: BlueGreen | None = None
    analysis: Analysis = Analysis()
    pdb_max_unavailable: int | str = 1
