"""What a generation route makes of a body: who asks, what the engine gets, how the answer looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rampway_server.errors import RequestError

if TYPE_CHECKING:
    from rampway_server.api.formats import Format
    from rampway_server.api.wire import SamplingBody, StreamOptions
    from rampway_server.engine.request import Request

__all__ = ["Caller", "Job", "usage_wishes"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and under which request id."""

    tenant: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A call that passed every check and may be given to the engine."""

    requests: list[Request]
    body: SamplingBody
    format: Format
    stream: bool
    usage_in_events: bool


def usage_wishes(options: StreamOptions | None, *, stream: bool) -> tuple[bool, bool]:
    """Return (usage at the end, usage in every event)."""
    if options is None:
        return False, False
    if not stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    # Usage in every event implies the final one.
    return options.include_usage or options.continuous_usage_stats, options.continuous_usage_stats
