"""`rampway-server`: picks the command, turns faults into one line and an exit status.

It knows no flag's meaning: `settings` does.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import structlog

from rampway_server import __version__
from rampway_server.bench.cli import run_bench
from rampway_server.errors import UsageError
from rampway_server.flags import DEVICES, build_parser
from rampway_server.logs import configure_logs
from rampway_server.settings import parse_serve, usage_exit

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 2 for the user's fault, 1 for ours."""
    args = build_parser().parse_args(argv)
    if args.command == "info":
        print(json.dumps(_info(), indent=2))  # noqa: T201 - its answer
        return 0
    try:
        if args.command == "bench":
            return run_bench(args)
        settings = parse_serve(args, os.environ)
        configure_logs(settings.log_level)
        # Only now: a wrong flag needs no web framework.
        from rampway_server.serve import run_server

        return run_server(settings)
    except UsageError as error:
        return usage_exit(error)
    except Exception as error:
        structlog.get_logger(__name__).exception("failed", error=repr(error))
        return 1


def _info() -> dict[str, Any]:
    """Return what is installed, without importing anything heavy."""
    packages = ("rampway-prefix-cache", "torch", "triton", "fastapi", "uvicorn", "tokenizers")
    return {
        "version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "rust_prefix_cache": importlib.util.find_spec("rampway_prefix_cache") is not None,
        "devices": list(DEVICES),
        "packages": {name: _version_of(name) for name in packages},
    }


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
