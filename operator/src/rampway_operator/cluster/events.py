"""Decisions as Kubernetes events, one each, however often they are posted.

It does not know how a decision was taken.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, Final

from rampway_operator.cluster.resources import EVENTS, INFERENCE_DEPLOYMENTS
from rampway_operator.core.observed import Observed
from rampway_operator.core.state import Decision, EndReason

__all__ = ["RECENT", "event_from", "event_name"]

RECENT: Final = timedelta(minutes=10)
"""Older decisions are not posted again after a restart: the event was posted or is of no use any more."""
MESSAGE_LIMIT: Final = 1024
COMPONENT: Final = "rampway-operator"

GOOD: Final = frozenset({EndReason.PROMOTED, EndReason.REVERTED, EndReason.SUPERSEDED})
WARNINGS: Final = frozenset(reason.value for reason in EndReason if reason not in GOOD)


def event_name(observed: Observed, decision: Decision) -> str:
    """The same name for the same decision, so that a second post meets the first."""
    identity = "|".join(
        (
            observed.uid,
            decision.at.isoformat(),
            decision.reason,
            decision.revision,
            decision.message,
        )
    )
    return f"{observed.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


def event_from(observed: Observed, decision: Decision) -> dict[str, Any]:
    """The event; a Warning when the decision ends a rollout badly or holds it for a fault."""
    at = _rfc3339(decision.at)
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {"name": event_name(observed, decision), "namespace": observed.namespace},
        "involvedObject": {
            "apiVersion": INFERENCE_DEPLOYMENTS.api_version,
            "kind": INFERENCE_DEPLOYMENTS.kind,
            "name": observed.name,
            "namespace": observed.namespace,
            "uid": observed.uid,
        },
        "type": "Warning" if decision.reason in WARNINGS else "Normal",
        "reason": decision.reason,
        "action": "Decision",
        "message": _bounded(decision.message),
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
    }


def _rfc3339(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _bounded(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else f"{message[: MESSAGE_LIMIT - 1]}…"
