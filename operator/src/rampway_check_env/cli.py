"""The command line: reads requirements, runs the checks, prints the report, leaves message and exit code.

It does not know any check. Exit codes: 0 pass, 10 BadRevision, 11 BadNode, 12 Infrastructure, 2 usage error.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List, Optional

from rampway_check_env.machine import Machine
from rampway_check_env.report import as_json, as_message, as_table, usage_message
from rampway_check_env.requirements import InvalidRequirements, parse_requirements
from rampway_check_env.run import run_checks
from rampway_check_env.units import parse_duration

__all__ = ["main"]

_TERMINATION_LOG = "/dev/termination-log"
_USAGE_ERROR = 2
_SHARE = 0.9
"""Share of the timeout that checks may use, so that the report comes out before somebody gives up."""


def main(arguments: Optional[List[str]] = None) -> int:
    """The exit code of a run with these arguments (default: those of the process)."""
    options = _parser().parse_args(arguments)
    try:
        text = _requirements_text(options.requirements)
        requirements = parse_requirements(text)
    except InvalidRequirements as invalid:
        for fault in invalid.faults:
            print("check_env: %s" % fault, file=sys.stderr)
        _leave_message(options.termination_log, usage_message(invalid.faults))
        return _USAGE_ERROR
    report = run_checks(
        requirements,
        Machine(),
        timeout=options.timeout * _SHARE,
        other_image=options.other_image,
    )
    print(as_json(report) if options.json else as_table(report), flush=True)
    _leave_message(options.termination_log, as_message(report))
    return 0 if options.warn else report.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="check_env",
        description="Checks whether this image can run on this node.",
        epilog="exit codes: 0 pass, 10 the image is at fault, 11 the node is at fault, 12 the check could not be made, 2 usage error",
    )
    parser.add_argument(
        "--requirements",
        default="",
        metavar="JSON|@FILE",
        help="what must hold, as JSON or as @ and the path of a file; default nothing",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the report as JSON instead of a table"
    )
    parser.add_argument(
        "--timeout",
        type=_timeout,
        default=240.0,
        metavar="DURATION",
        help="longest run of all checks, for example 90s; default 4m",
    )
    parser.add_argument(
        "--warn",
        action="store_true",
        help="exit with 0 whatever is found; the report says what it was",
    )
    parser.add_argument(
        "--other-image",
        action="store_true",
        help="this is not the engine's image: check the node only, and say what was not checked",
    )
    parser.add_argument(
        "--termination-log",
        default=_TERMINATION_LOG,
        metavar="PATH",
        help="file for the short JSON message; a missing file is no error; default %(default)s",
    )
    return parser


def _timeout(text: str) -> float:
    seconds = parse_duration(text)
    if not seconds:
        raise argparse.ArgumentTypeError("got %r, need a duration above 0 such as 90s or 4m" % text)
    return seconds


def _requirements_text(argument: str) -> str:
    if not argument.startswith("@"):
        return argument
    try:
        with Path(argument[1:]).open(encoding="utf-8") as stream:
            return stream.read(1 << 20)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequirements(
            ["--requirements: %s cannot be read (%s)" % (argument[1:], error)]
        ) from None


def _leave_message(path: str, message: str) -> None:
    """Writes the message where the file exists: Kubernetes makes it, elsewhere nobody reads it."""
    if not Path(path).exists():
        return
    try:
        with Path(path).open("w", encoding="utf-8") as stream:
            stream.write(message)
    except OSError as error:
        print("check_env: the termination message cannot be written (%s)" % error, file=sys.stderr)
