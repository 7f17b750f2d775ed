"""Reads the blocks of a spec that say how a rollout goes: strategy, analysis, preflight, warm-up.

It does not know rules that span blocks; those are in `rules.py`.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Final

from rampway_operator.core.reader import Node
from rampway_operator.core.spec import (
    DEFAULT_OBJECTIVES,
    DEFAULT_STEPS,
    Against,
    Analysis,
    AnalysisMode,
    AnalysisStep,
    BlueGreen,
    Canary,
    Comparison,
    ErrorRates,
    Metric,
    Objective,
    OnBadNode,
    OnFailure,
    OnInfrastructure,
    OnUndecided,
    PauseStep,
    Preflight,
    PreflightFailurePolicy,
    PreflightMode,
    Require,
    SetWeightStep,
    Step,
    Warmup,
    WarmupStep,
)

__all__ = [
    "LATENCIES",
    "read_analysis",
    "read_preflight",
    "read_strategy",
    "read_warmup",
]

LATENCIES: Final = frozenset({Metric.TTFT, Metric.INTER_TOKEN_LATENCY, Metric.E2E_LATENCY})
_NAME: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_REQUIREMENTS: Final = (
    "glibcxx", "cxxabi", "glibc", "cudaDriver", "torch", "triton", "tritonCompile", "gpu",
    "prefixCache", "shm", "memlock", "openFiles", "disk", "libraries", "custom",
)  # fmt: skip
_DEFAULTS: Final = Canary()


_BLUE_GREEN: Final = BlueGreen()


def read_strategy(strategy: Node) -> tuple[Canary, BlueGreen | None]:
    """The steps of a rollout, and the blue-green strategy behind them if that is what is asked for."""
    strategy.object("canary", "blueGreen")
    canary, blue_green = strategy.get("canary"), strategy.get("blueGreen")
    if strategy.present and canary.present == blue_green.present:
        given = "both" if canary.present else "neither"
        strategy.fault(
            f"has {given}, need exactly one of canary and blueGreen: write `canary: {{}}` for the default, "
            "or take the other one away (null in a merge patch)"
        )
    if blue_green.present:
        asked = _blue_green(blue_green)
        return asked.as_steps(), asked
    return _canary(canary), None


def _canary(node: Node) -> Canary:
    """The canary; an absent one and `{}` mean the default."""
    node.object("maxSurge", "maxUnavailable", "baseline", "steps", "bake", "scaleDownDelay")
    baseline = node.get("baseline").object("enabled")
    steps = node.get("steps")
    return Canary(
        steps=tuple(_step(item) for item in steps.items(30)) if steps.present else DEFAULT_STEPS,
        max_surge=node.get("maxSurge").pods(_DEFAULTS.max_surge),
        max_unavailable=node.get("maxUnavailable").pods(_DEFAULTS.max_unavailable),
        baseline=baseline.get("enabled").boolean(default=_DEFAULTS.baseline),
        bake=node.get("bake").duration(_DEFAULTS.bake),
        scale_down_delay=node.get("scaleDownDelay").duration(_DEFAULTS.scale_down_delay),
    )


def _blue_green(node: Node) -> BlueGreen:
    node.object("previewReplicas", "autoPromote", "prePromotion", "bake", "scaleDownDelay")
    judged = node.get("prePromotion").object("objectives").get("objectives")
    preview = node.get("previewReplicas")
    size = preview.pods(_BLUE_GREEN.preview_replicas)
    if size in (0, "0%"):
        preview.fault(f"{size} pods could not be judged before the switch, need at least 1")
    return BlueGreen(
        preview_replicas=size,
        auto_promote=node.get("autoPromote").boolean(default=_BLUE_GREEN.auto_promote),
        pre_promotion=tuple(item.text("", most=63, least=1) for item in judged.items(16)),
        bake=node.get("bake").duration(_BLUE_GREEN.bake),
        scale_down_delay=node.get("scaleDownDelay").duration(_BLUE_GREEN.scale_down_delay),
    )


def _step(node: Node) -> Step:
    kinds = ("setWeight", "analysis", "pause", "warmup")
    node.object(*kinds)
    given = [kind for kind in kinds if node.get(kind).present]
    if len(given) != 1:
        node.fault(f"has {len(given)} actions, need exactly one of {', '.join(kinds)}")
        return PauseStep()
    inner = node.get(given[0])
    match given[0]:
        case "setWeight":
            return SetWeightStep(inner.integer(1, 1, 100))
        case "analysis":
            inner.object("objectives")
            return AnalysisStep(
                tuple(item.text("", most=63, least=1) for item in inner.get("objectives").items(16))
            )
        case "pause":
            inner.object("duration")
            length = inner.get("duration")
            return PauseStep(length.duration(timedelta(0)) if length.present else None)
        case _:
            inner.object()
            return WarmupStep()


def read_analysis(node: Node) -> Analysis:
    """How a candidate is judged."""
    node.object(
        "mode", "interval", "maxDuration", "onUndecided", "onFailure", "errorRates", "source", "outage",
        "objectives",
    )  # fmt: skip
    prometheus = _prometheus(node.get("source"))
    rates = node.get("errorRates").object("falseAbort", "missedRegression")
    outage = node.get("outage").object("policy", "maxDuration", "afterMax")
    outage.get("policy").text("Hold", pattern="Hold")
    listed = node.get("objectives")
    objectives = (
        tuple(_objective(item) for item in listed.items(16))
        if listed.present
        else DEFAULT_OBJECTIVES
    )
    return Analysis(
        mode=node.get("mode").one_of(AnalysisMode, AnalysisMode.ENFORCE),
        interval=node.get("interval").duration(timedelta(seconds=15), least=timedelta(seconds=1)),
        max_duration=node.get("maxDuration").duration(timedelta(hours=1)),
        on_undecided=node.get("onUndecided").one_of(OnUndecided, OnUndecided.PAUSE),
        on_failure=node.get("onFailure").one_of(OnFailure, OnFailure.ABORT),
        error_rates=ErrorRates(
            false_abort=rates.get("falseAbort").decimal(Decimal("0.05"), "0.00001", "0.5"),
            missed_regression=rates.get("missedRegression").decimal(
                Decimal("0.20"), "0.00001", "0.5"
            ),
        ),
        prometheus=prometheus,
        outage_max_duration=outage.get("maxDuration").duration(timedelta(minutes=30)),
        outage_after_max=outage.get("afterMax").one_of(OnFailure, OnFailure.PAUSE),
        objectives=objectives,
    )


def _prometheus(source: Node) -> str | None:
    """The name of the Prometheus; None for the direct source, which is what nothing says."""
    source.object("direct", "prometheus")
    source.get("direct").object()
    prometheus = source.get("prometheus")
    if not prometheus.present:
        return None
    if source.get("direct").present:
        source.fault("has 2 sources, need one of direct and prometheus")
    name = prometheus.object("name").get("name")
    if not name.present:
        name.fault("is missing")
    return name.text("", pattern=_NAME, most=63)


def _objective(node: Node) -> Objective:
    node.object(
        "name", "metric", "quantile", "tail", "comparison", "slo", "minSamples", "require",
        "steadyOnly", "blocking",
    )  # fmt: skip
    for key in ("name", "metric"):
        if not node.get(key).present:
            node.get(key).fault("is missing")
    metric = node.get("metric").one_of(Metric, Metric.TTFT)
    quantile, tail = _share(node.get("quantile")), _share(node.get("tail"))
    comparison = _comparison(node.get("comparison"))
    certain = Require.NOT_FAIL if quantile is not None and comparison is not None else Require.PASS
    return Objective(
        name=node.get("name").text("", pattern=_NAME, most=63),
        metric=metric,
        quantile=quantile,
        tail=tail,
        comparison=comparison,
        slo_max=_slo(node.get("slo"), metric),
        min_samples=node.get("minSamples").integer(300, 1, 10_000_000),
        require=node.get("require").one_of(Require, certain),
        steady_only=node.get("steadyOnly").boolean(default=metric is Metric.PREFIX_CACHE_HIT_RATE),
        blocking=node.get("blocking").boolean(default=True),
    )


def _share(node: Node) -> Decimal | None:
    return node.decimal(Decimal("0.5"), "0.5", "0.99999") if node.present else None


def _comparison(node: Node) -> Comparison | None:
    if not node.present:
        return None
    node.object("against", "maxRegression", "maxDrop")
    regression, drop = node.get("maxRegression"), node.get("maxDrop")
    if regression.present == drop.present:
        node.fault("needs exactly one of maxRegression (latency) and maxDrop (hit rate)")
    return Comparison(
        against=node.get("against").one_of(Against, Against.BASELINE),
        max_regression=regression.decimal(Decimal(0), "0", "99.9999")
        if regression.present
        else None,
        max_drop=drop.decimal(Decimal(0), "0", "0.99999") if drop.present else None,
    )


def _slo(node: Node, metric: Metric) -> Decimal | None:
    if not node.present:
        return None
    limit = node.object("max").get("max")
    if not limit.present:
        limit.fault("is missing")
        return None
    if metric in LATENCIES:
        longest = limit.duration(timedelta(0), least=timedelta(milliseconds=1))
        return Decimal(longest // timedelta(milliseconds=1)) / 1000
    return limit.decimal(Decimal(0), "0", "1")


def read_preflight(node: Node) -> Preflight:
    """The environment check; its requirements stay plain data for check_env, which judges their values."""
    node.object("mode", "image", "requirements", "onFailure", "timeout")
    requirements = node.get("requirements").object(*_REQUIREMENTS)
    policy = node.get("onFailure").object(
        "badRevision", "badNode", "infrastructure", "maxAvoidedNodes", "retries"
    )
    policy.get("badRevision").text("Rollback", pattern="Rollback")
    return Preflight(
        mode=node.get("mode").one_of(PreflightMode, PreflightMode.ENFORCE),
        requirements=dict(requirements.value) if requirements.present else {},
        on_failure=PreflightFailurePolicy(
            bad_node=policy.get("badNode").one_of(OnBadNode, OnBadNode.AVOID_NODE),
            infrastructure=policy.get("infrastructure").one_of(
                OnInfrastructure, OnInfrastructure.HOLD
            ),
            max_avoided_nodes=policy.get("maxAvoidedNodes").integer(2, 0, 32),
            retries=policy.get("retries").integer(1, 0, 10),
        ),
        timeout=node.get("timeout").duration(timedelta(minutes=5), least=timedelta(seconds=5)),
        image=node.get("image").text("", pattern=r"[^\s]*", most=512),
    )


def read_warmup(node: Node) -> Warmup:
    """The warm-up; absent means none."""
    if not node.present:
        return Warmup()
    node.object("source", "steady", "budget", "onTimeout")
    prompts = node.get("source").object("promptSet").get("promptSet").object("configMapName", "key")
    steady = node.get("steady").object("maxDelta")
    budget = node.get("budget").object("requests", "maxDuration")
    name = prompts.get("configMapName").text("", most=253, least=1)
    return Warmup(
        prompt_config_map=name or None,
        prompt_key=prompts.get("key").text("prompts.jsonl", most=253, least=0) or "prompts.jsonl",
        max_delta=steady.get("maxDelta").decimal(Decimal("0.02"), "0", "0.99999"),
        max_requests=budget.get("requests").integer(2000, 1, 1_000_000),
        max_duration=budget.get("maxDuration").duration(timedelta(minutes=10)),
        on_timeout=node.get("onTimeout").one_of(OnUndecided, OnUndecided.PAUSE),
    )
