"""Tells people what happens while it happens, never silent for longer than a heartbeat.

It knows nothing of what is being done.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HEARTBEAT_S = 15.0
_started = time.monotonic()


def say(text: str) -> None:
    """Prints one line to stderr with the time since this program started."""
    print(f"[{duration(time.monotonic() - _started)}] {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """`m:ss`, for people."""
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


@contextmanager
def heartbeat(
    what: str,
    expected_s: float | None = None,
    detail: Callable[[], str] = str,
    every_s: float = HEARTBEAT_S,
) -> Iterator[None]:
    """Prints `what`, then every `every_s` how long it has run, of how much, and `detail()`."""
    began = time.monotonic()
    of_expected = f" of about {duration(expected_s)}" if expected_s else ""
    say(f"{what} (about {duration(expected_s)})" if expected_s else what)
    done = threading.Event()

    def beat() -> None:
        while not done.wait(every_s):
            extra = detail()
            ran = duration(time.monotonic() - began)
            say(f"  ... {what}: {ran}{of_expected}{', ' + extra if extra else ''}")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
