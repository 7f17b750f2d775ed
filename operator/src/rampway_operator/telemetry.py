"""The operator's own metrics and log format.

It does not know where the numbers come from; names and labels are fixed here so that dashboards can rely on them.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Telemetry", "configure_logging"]

VERDICT_VALUES = {"Fail": -1.0, "Undecided": 0.0, "Pass": 1.0}


class Telemetry:
    """Metrics of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._objectives: dict[tuple[str, str], set[str]] = {}
        self._count_work(self.registry)
        self._show_process(self.registry)
        self._show_rollouts(self.registry)

    def _count_work(self, registry: CollectorRegistry) -> None:
        self.reconcile_seconds = Histogram(
            "rampway_operator_reconcile_seconds",
            "Duration of one look at an InferenceDeployment.",
            ("result",),
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.writes = Counter(
            "rampway_operator_api_writes",
            "Writes sent to the API server.",
            ("verb", "resource"),
            registry=registry,
        )
        self.decisions = Counter(
            "rampway_operator_decisions",
            "Decisions by reason.",
            ("reason",),
            registry=registry,
        )
        self.rollouts = Counter(
            "rampway_operator_rollouts",
            "Ended rollouts by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.rollout_seconds = Histogram(
            "rampway_operator_rollout_seconds",
            "Duration of ended rollouts by outcome.",
            ("outcome",),
            registry=registry,
            buckets=(10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400),
        )

    def _show_process(self, registry: CollectorRegistry) -> None:
        self.queue_depth = Gauge(
            "rampway_operator_queue_depth", "Keys that wait for a worker.", registry=registry
        )
        self.queue_age = Gauge(
            "rampway_operator_queue_oldest_seconds",
            "Age of the key that waits longest.",
            registry=registry,
        )
        self.leader = Gauge(
            "rampway_operator_leader", "1 on the replica that holds the Lease.", registry=registry
        )
        self.lease_acquisitions = Counter(
            "rampway_operator_lease_acquisitions",
            "How often this process became the leader.",
            registry=registry,
        )
        self.audit_age = Gauge(
            "rampway_operator_watch_audit_age_seconds",
            "Seconds since the watches were last compared with a fresh list.",
            registry=registry,
        )

    def _show_rollouts(self, registry: CollectorRegistry) -> None:
        deployment = ("namespace", "name")
        self.step = Gauge(
            "rampway_rollout_step",
            "Index of the current canary step; absent without a rollout.",
            deployment,
            registry=registry,
        )
        self.weight = Gauge(
            "rampway_rollout_weight_percent",
            "Verified share of the candidate.",
            deployment,
            registry=registry,
        )
        self.verdict = Gauge(
            "rampway_rollout_verdict",
            "Last verdict: 1 Pass, 0 Undecided, -1 Fail.",
            (*deployment, "objective"),
            registry=registry,
        )

    def write_sent(self, verb: str, resource: str) -> None:
        """Count one write to the API server."""
        self.writes.labels(verb, resource).inc()

    def rollout_ended(self, outcome: str, seconds: float) -> None:
        """Count an ended rollout and how long it took."""
        self.rollouts.labels(outcome).inc()
        self.rollout_seconds.labels(outcome).observe(max(0.0, seconds))

    def rollout_seen(
        self, namespace: str, name: str, *, step: int, weight: int, verdicts: dict[str, str]
    ) -> None:
        """Show where the rollout stands."""
        self.step.labels(namespace, name).set(step)
        self.weight.labels(namespace, name).set(weight)
        known = self._objectives.setdefault((namespace, name), set())
        for gone in known - verdicts.keys():
            self.verdict.remove(namespace, name, gone)
        known.clear()
        for objective, verdict in verdicts.items():
            known.add(objective)
            self.verdict.labels(namespace, name, objective).set(VERDICT_VALUES.get(verdict, 0.0))

    def no_rollout(self, namespace: str, name: str) -> None:
        """Take the series of a rollout that has ended, or whose object is gone, away."""
        objectives = self._objectives.pop((namespace, name), None)
        if objectives is None:
            return
        self.step.remove(namespace, name)
        self.weight.remove(namespace, name)
        for objective in objectives:
            self.verdict.remove(namespace, name, objective)

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def configure_logging(log_format: str, level: str) -> None:
    """Log to stderr, one line an event: JSON, or coloured text for people. Libraries log in the same format."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    ending: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *ending],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("kopf", "aiohttp.access", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))
    # It warns that signals are ignored in its thread, which is what is wanted: they are handled here.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
