"""What holds for every test of the repository: no verdict by the clock, no log settings left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing about the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Undo a test's structlog settings, which would change what the next one sees."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
