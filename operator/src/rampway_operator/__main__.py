"""The command `rampway-operator`: reads settings, sets up logging, runs. It decides nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from importlib import metadata

from rampway_operator.errors import ApiError, SettingsError
from rampway_operator.settings import read_settings

__all__ = ["main"]

CANNOT_START = 1
USAGE = 2

FLAGS = {
    "namespaces": "comma list of namespaces to serve; * for all (default: the operator's own)",
    "lease-name": "name of the Lease for leader election (default rampway-operator)",
    "lease-namespace": "namespace of the Lease (default: the operator's own)",
    "identity": "name of this process in the Lease (default: host name and a random part)",
    "http-port": "port of /livez, /readyz and /metrics (default 8080)",
    "prometheus": 'metrics sources: JSON list, such as [{"name": "main", "url": "http://prometheus:9090"}]',
    "log-format": "json or console (default json)",
    "log-level": "debug, info, warning or error (default info)",
    "kubeconfig": "path of a kubeconfig, to run outside a cluster",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 stopped, 1 cannot start or lost the Lease, 2 bad settings, 3 the watches ended."""
    options = _parser().parse_args(arguments)
    flags = {
        name.replace("-", "_").upper(): getattr(options, name.replace("-", "_")) for name in FLAGS
    }
    try:
        settings = read_settings(os.environ, flags=flags)
    except SettingsError as error:
        print(f"rampway-operator: {error}", file=sys.stderr)  # noqa: T201 before logging is set up
        return USAGE
    # Late: bad settings are reported without waiting for these to load.
    from rampway_operator.process import run  # noqa: PLC0415 wrong settings are named before kopf is loaded
    from rampway_operator.telemetry import configure_logging  # noqa: PLC0415 the same

    configure_logging(settings.log_format, settings.log_level)
    try:
        return asyncio.run(run(settings))
    except (ApiError, OSError) as error:
        print(f"rampway-operator: {error}", file=sys.stderr)  # noqa: T201 one line for whoever started it
        return CANNOT_START


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rampway-operator", description="Rolls out LLM serving images by evidence."
    )
    parser.add_argument("--version", action="version", version=f"rampway-operator {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="run")
    run = commands.add_parser(
        "run",
        help="run the operator",
        description="Each flag has a variable, e.g. RAMPWAY_HTTP_PORT.",
    )
    for name, text in FLAGS.items():
        run.add_argument(f"--{name}", help=text)
    return parser


def _version() -> str:
    try:
        return metadata.version("rampway-operator")
    except metadata.PackageNotFoundError:
        return "from source"


if __name__ == "__main__":
    sys.exit(main())
