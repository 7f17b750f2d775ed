"""Log lines on stderr: one JSON object a line, or readable ones on a terminal.

It knows no event: names and keys are the caller's; prompts, outputs and keys are never logged.
"""

from __future__ import annotations

import logging
import sys

import structlog

__all__ = ["LEVELS", "configure_logs"]

LEVELS = ("debug", "info", "warning", "error")


def configure_logs(level: str) -> None:
    """Send structlog's and the standard library's lines at `level` and above to stderr."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(stream=sys.stderr, level=max(number, logging.WARNING), force=True)
