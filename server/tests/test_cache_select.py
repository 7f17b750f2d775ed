"""Which cache runs, and how loudly when it is not the one asked for."""

from __future__ import annotations

import sys

import pytest

from rampway_server.cache.select import BACKENDS, CacheUnavailableError, open_cache


@pytest.fixture
def without_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the import of the extension fail as it does where it is not installed."""
    monkeypatch.setitem(sys.modules, "rampway_prefix_cache", None)
    monkeypatch.delitem(sys.modules, "rampway_server.cache.rust", raising=False)


@pytest.mark.parametrize("backend", ["python", "off"])
def test_given_a_python_backend_when_opened_then_it_runs_without_a_word(backend):
    selected = open_cache(backend, 8)
    assert (selected.requested, selected.running, selected.fallback) == (backend, backend, None)
    assert selected.cache.page_size == 16


def test_given_the_extension_when_rust_is_opened_then_rust_runs():
    pytest.importorskip("rampway_prefix_cache", reason="the Rust cache is not built")
    selected = open_cache("rust", 8, require_rust=True)
    assert (selected.running, selected.fallback) == ("rust", None)


@pytest.mark.usefixtures("without_extension")
def test_given_no_extension_when_rust_is_opened_then_python_runs_and_says_why():
    selected = open_cache("rust", 8)
    assert (selected.requested, selected.running) == ("rust", "python")
    assert "rampway_prefix_cache" in (selected.fallback or "")
    assert selected.cache.stats().free == 7


@pytest.mark.usefixtures("without_extension")
def test_given_no_extension_when_rust_is_required_then_refused_with_the_remedy():
    with pytest.raises(CacheUnavailableError, match="install the package rampway-prefix-cache"):
        open_cache("rust", 8, require_rust=True)


def test_given_an_unknown_backend_when_opened_then_the_choices_are_named():
    with pytest.raises(CacheUnavailableError, match=", ".join(BACKENDS)):
        open_cache("redis", 8)


def test_given_an_unknown_policy_when_opened_then_the_choices_are_named():
    with pytest.raises(CacheUnavailableError, match="lru, lfu, slru, priority"):
        open_cache("python", 8, policy="random")


@pytest.mark.parametrize("backend", ["python", "off"])
def test_given_rust_required_when_another_backend_is_asked_for_then_refused(backend):
    with pytest.raises(CacheUnavailableError, match="drop one of the two options"):
        open_cache(backend, 8, require_rust=True)
