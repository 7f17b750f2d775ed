"""What runs in child processes: each probe loads something that may crash or hang, and reports what it saw.

It decides nothing: the checks read the reports.
"""

from __future__ import annotations

import importlib
import json
import sys

from rampway_check_env.child import RESULT_MARK

__all__ = ["main"]

_PROBES = ("cuda", "kernel_log", "nvml", "prefix_tree", "pytorch", "triton_kernel")


def main(name: str, arguments: str) -> None:
    """Runs one probe and prints its result as the last line; exits with 3 and the error where it fails."""
    if name not in _PROBES:
        raise SystemExit("no probe named %r, need one of %s" % (name, ", ".join(_PROBES)))
    try:
        result = importlib.import_module("rampway_check_env.probes." + name).probe(
            **json.loads(arguments)
        )
    except Exception as error:  # whatever a broken image raises is what we want to know
        text = " ".join(str(error).split())
        print("%s: %s" % (type(error).__name__, text[:1000]), file=sys.stderr)
        raise SystemExit(3) from None
    sys.stdout.flush()
    print("\n" + RESULT_MARK + json.dumps(result), flush=True)
