"""Starts real server processes on free loopback ports, and reads what they say."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 60.0
"""Generous: many test processes may share two cores."""


@dataclass
class ServerProcess:
    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)
    events: queue.SimpleQueue[dict[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    port: int = 0
    metrics_port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.metrics_port}/metrics"

    def read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with contextlib.suppress(json.JSONDecodeError):
                self.events.put(json.loads(line))
        self.events.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """Return the log line of this name, the next one that comes."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            line = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            if line is None:
                raise AssertionError(f"server ended before {event}: {self.lines}")
            self.lines.append(line)
            if line["event"] == event:
                return line

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def metrics(self) -> dict[str, float]:
        """Return every sample, keyed as in the exposition."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as response:
            text = response.read().decode()
        lines = (line for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return json.loads(response.read())


@contextlib.contextmanager
def serving(
    *args: str, env: dict[str, str] | None = None, sabotage: str = "", ready: bool = True
) -> Iterator[ServerProcess]:
    """Yield a ready server; it is killed at the end if the test has not ended it.

    `sabotage` is Python that runs before the server in its process; without `ready` it only listens.
    """
    code = f"{sabotage}\nimport sys\nfrom rampway_server.__main__ import main\nsys.exit(main())"
    start = ["-c", code] if sabotage else ["-m", "rampway_server"]
    command = [sys.executable, *start, "serve", "--host", "127.0.0.1"]
    command += ["--port", "0", "--metrics-port", "0"]
    if "--device" not in args:
        command += ["--device", "simulated:instant"]
    process = subprocess.Popen(
        [*command, *args],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    server = ServerProcess(process)
    reader = threading.Thread(target=server.read_stderr, daemon=True)
    reader.start()
    try:
        listening = server.wait_for("listening")
        server.port, server.metrics_port = listening["port"], listening["metrics_port"]
        if ready:
            server.wait_for("ready")
        yield server
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()
