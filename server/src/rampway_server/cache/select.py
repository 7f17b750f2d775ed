"""Which prefix cache runs: `rust`, `python` or `off`, and what happens when Rust is missing.

Knows no cache's inside, and neither logs nor counts: the caller says out loud what it got.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from rampway_server.cache.off import NoPrefixCache
from rampway_server.cache.protocol import POLICIES, CacheError
from rampway_server.cache.reference import PythonPrefixCache

if TYPE_CHECKING:
    from rampway_server.cache.protocol import Policy, PrefixCache

__all__ = ["BACKENDS", "Backend", "CacheUnavailableError", "Selected", "open_cache"]

Backend: TypeAlias = Literal["rust", "python", "off"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


class CacheUnavailableError(CacheError):
    """The cache that was asked for cannot run here; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The cache to use, and what to tell people about it."""

    cache: PrefixCache
    requested: Backend
    running: Backend
    fallback: str | None = None
    """Why something else runs than was asked for. When set: log it as a warning, show it in
    `/server_info` and in the backend metric."""


def open_cache(
    requested: str,
    num_pages: int,
    page_size: int = 16,
    *,
    require_rust: bool = False,
    policy: Policy = "lru",
) -> Selected:
    """Return the requested cache; Rust falls back to Python unless `require_rust`.

    Raises CacheUnavailableError for an unknown name, for `require_rust` together with another
    backend, and for a required extension that cannot be loaded; InvalidInputError for sizes.
    """
    if policy not in POLICIES:
        raise CacheUnavailableError(
            f"prefix cache has no such policy: got {policy!r}, need one of {', '.join(POLICIES)}"
        )
    if requested not in BACKENDS:
        raise CacheUnavailableError(
            f"prefix cache has no such backend: got {requested!r}, need one of "
            f"{', '.join(BACKENDS)}"
        )
    backend: Backend = requested
    if require_rust and backend != "rust":
        raise CacheUnavailableError(
            f"the Rust prefix cache is required, but {backend!r} was asked for: "
            "drop one of the two options"
        )
    if backend == "off":
        return Selected(NoPrefixCache(num_pages, page_size), backend, "off")
    if backend == "python":
        return Selected(PythonPrefixCache(num_pages, page_size, policy), backend, "python")
    try:
        rust = import_module("rampway_server.cache.rust")
    except ImportError as error:
        reason = f"the Rust prefix cache cannot be loaded: {error}"
        if require_rust:
            raise CacheUnavailableError(
                f"{reason}; install the package rampway-prefix-cache of this version, "
                "or allow the slower Python cache"
            ) from error
        return Selected(PythonPrefixCache(num_pages, page_size, policy), backend, "python", reason)
    cache: PrefixCache = rust.RustPrefixCache(num_pages, page_size, policy)
    return Selected(cache, backend, "rust")
