"""Reading token and page buffers, and writing page rows, for the Python caches.

Knows no cache: it only turns what a caller passed into plain values, or refuses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rampway_server.cache.protocol import InvalidInputError, StaleHandleError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rampway_server.cache.protocol import PageIds, PageRow, TokenBuffer

__all__ = ["MAX_ID", "read_handles", "read_pages", "read_tokens", "write_pages"]

MAX_ID = 2**31 - 1
"""The largest token id and page id: what an int32 can hold."""

_READABLE = {np.dtype(np.uint32), np.dtype(np.int32), np.dtype(np.int64)}


def read_tokens(tokens: TokenBuffer, limit: int | None) -> NDArray[np.int64]:
    """Return `tokens[:limit]`; a limit past the end is the end."""
    array = _borrow(tokens, "tokens")
    if limit is None:
        return array.astype(np.int64)
    if limit < 0:
        raise InvalidInputError(f"limit is negative: got {limit}, need 0 or more, or None")
    return array[:limit].astype(np.int64)


def read_handles(handles: Sequence[int], require_live: Callable[[int], object]) -> None:
    """Refuse handles of which one is stale (`require_live` raises) or given twice."""
    for at, handle in enumerate(handles):
        require_live(handle)
        if handle in handles[:at]:
            raise StaleHandleError(f"handle is given twice: got {handle}")


def read_pages(pages: PageIds, start: int = 0, stop: int | None = None) -> list[int]:
    """Return the page ids `pages[start:stop]`; `stop` past the end is refused."""
    if isinstance(pages, list | tuple):
        values: Sequence[int] = pages
    else:
        values = _borrow(pages, "pages").tolist()
    if stop is not None and stop > len(values):
        raise InvalidInputError(f"pages are too few: got {len(values)}, need {stop}")
    return list(values[start:stop])


def write_pages(out: PageRow, at: int, pages: Sequence[int]) -> None:
    """Write `pages` to `out[at:]`; nothing is written when they do not fit."""
    row = row_view(out, at, len(pages))
    row[:] = pages


def row_view(out: PageRow, at: int, n: int) -> NDArray[np.int32]:
    """Return `out[at:at + n]` as a writable view, or refuse the buffer."""
    try:
        view = memoryview(out)
    except TypeError:
        raise InvalidInputError(
            f"out is not a buffer: got {type(out).__name__}, need a writable int32 buffer"
        ) from None
    if view.readonly or view.ndim != 1 or not view.c_contiguous or view.format not in {"i", "l"}:
        raise InvalidInputError(
            f"out is not a page row: got format {view.format!r} in {view.ndim} dimensions, "
            f"{'read-only' if view.readonly else 'writable'}, need a writable, C-contiguous, "
            "one-dimensional int32 buffer"
        )
    if view.itemsize != 4:
        raise InvalidInputError(f"out has {view.itemsize}-byte items: need int32")
    if at < 0 or at + n > len(view):
        raise InvalidInputError(
            f"out is too short: got room for {max(len(view) - at, 0)} pages at {at}, need {n}"
        )
    return np.asarray(view)[at : at + n]


def _borrow(buffer: object, what: str) -> NDArray[np.int64]:
    """Return a one-dimensional view of a u32, i32 or i64 buffer."""
    need = "need a C-contiguous, one-dimensional buffer of u32, i32 or i64"
    try:
        view = memoryview(buffer)  # type: ignore[arg-type]  # anything else raises TypeError
    except TypeError:
        raise InvalidInputError(
            f"{what} is not a buffer: got {type(buffer).__name__}, {need}"
        ) from None
    if view.ndim != 1 or not view.c_contiguous:
        raise InvalidInputError(f"{what} has a wrong layout: got {view.ndim} dimensions, {need}")
    array = np.asarray(view)
    if array.dtype not in _READABLE:
        raise InvalidInputError(f"{what} has a wrong type: got {array.dtype}, {need}")
    return array
