"""Runs the check as a process: `python -m rampway_check_env`. It knows nothing that `cli.py` does not know."""

import signal

from rampway_check_env.cli import main


def _end(number: int, _: object) -> None:
    """Ends at once: as process 1 of a container, Python would ignore SIGTERM and be waited for."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    raise SystemExit(main())
