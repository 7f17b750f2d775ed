"""Compiles grammars for `api.grammars` in a process of its own, which its CPU timer may kill.

It knows one line of JSON in (a grammar) and one out (why it cannot be used, "" when it can).
"""

from __future__ import annotations

import json
import resource
import signal
import sys

from rampway_server.engine.grammar import fault_of

__all__ = ["COMPILE_SECONDS"]

COMPILE_SECONDS = 0.2
"""CPU time one grammar may take."""
MEMORY_BYTES = 1 << 30


def main() -> None:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's, meant for the server
    for line in sys.stdin:
        # SIGPROF ends the process: no handler could run while the compiler does.
        signal.setitimer(signal.ITIMER_PROF, COMPILE_SECONDS)
        fault = fault_of(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(fault) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
