"""Lets Triton find kernels that were compiled into the image, beside its own cache folder.

It knows Triton's cache managers and two folders. The image's is read only, as the root of a pod
is; what is not in it is compiled into `TRITON_CACHE_DIR` as ever. Triton takes the class from
`TRITON_CACHE_MANAGER`, which `dispatch.pin_environment` sets.
"""
# mypy: disable-error-code="misc, no-any-return, no-untyped-call"

from __future__ import annotations

import os

from triton.runtime.cache import FileCacheManager

from rampway_server.kernels.dispatch import BAKED

__all__ = ["BakedCache"]


class BakedCache(FileCacheManager):
    """One compilation's files: those in the cache folder, else those in the image."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:  # noqa: FBT001, FBT002 - Triton's signature
        super().__init__(key, override=override, dump=dump)
        self._baked = _ImageFiles(key)

    def get_file(self, filename: str) -> str | None:
        """Return the path of a file of this compilation."""
        return super().get_file(filename) or self._baked.get_file(filename)

    def get_group(self, filename: str) -> dict[str, str] | None:
        """Return the paths of all files that were written together with `filename`."""
        return super().get_group(filename) or self._baked.get_group(filename)


class _ImageFiles(FileCacheManager):
    def __init__(self, key: str) -> None:
        """Point at a folder that may not be there: the base class would make it."""
        self.key = key
        self.lock_path = None
        self.cache_dir = os.path.join(os.environ[BAKED], key)  # noqa: PTH118 - text, as the base's
