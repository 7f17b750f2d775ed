"""API keys: who a caller is, and the cache namespace that belongs to them.

It knows no route; only hashes of keys are kept in memory.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rampway_server.errors import RequestError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Keys", "namespace"]

MIN_KEY_LENGTH = 8


@dataclass(frozen=True, slots=True)
class Keys:
    """SHA-256 of every key with its tenant; without any key the API is open."""

    tenants: tuple[tuple[bytes, str], ...] = ()
    admins: tuple[bytes, ...] = ()

    @staticmethod
    def read(key_files: Iterable[Path], admin_file: Path | None) -> Keys:
        """Return the keys of the files; raises UsageError for an empty or malformed one."""
        tenants = [pair for path in key_files for pair in _read_file(path)]
        admins = [digest for digest, _ in _read_file(admin_file)] if admin_file else []
        return Keys(tuple(tenants), tuple(admins))

    def tenant_of(self, authorization: bytes | None) -> str:
        """Return the caller's tenant, "" on an open API; raises 401.

        Every key is compared, whichever matches, so that time tells nothing.
        """
        if not self.tenants:
            return ""
        given = _bearer(authorization)
        found = [tenant for digest, tenant in self.tenants if hmac.compare_digest(digest, given)]
        if not found and not self._is_admin(given):
            raise _unauthorized()
        return found[0] if found else ""

    def require_admin(self, authorization: bytes | None) -> None:
        """Raise 401 unless the caller holds an admin key; a server without any keys is open."""
        if not self.admins and not self.tenants:
            return
        given = _bearer(authorization)
        if not self._is_admin(given):
            raise _unauthorized()

    def _is_admin(self, given: bytes) -> bool:
        return sum(hmac.compare_digest(digest, given) for digest in self.admins) > 0


def namespace(tenant: str, salt: str | None, model_id: str) -> bytes:
    """Return the cache namespace: callers share cached prefixes only if all three are equal.

    Each part goes in with its length, so that ("ab", "c") and ("a", "bc") differ.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"rampway-ns-v1")
    for part in (tenant, salt or "", model_id):
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.digest()


def _read_file(path: Path) -> list[tuple[bytes, str]]:
    pairs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        tenant, colon, key = text.partition(":")
        key = key.strip() if colon else tenant
        if len(key) < MIN_KEY_LENGTH:
            raise UsageError(
                f"key file {str(path)!r} line {number}: key is too short: got {len(key)}"
                f" characters, need {MIN_KEY_LENGTH} or more"
            )
        digest = hashlib.sha256(key.encode()).digest()
        # A key without a name is a tenant of its own.
        pairs.append((digest, tenant.strip() if colon else digest.hex()[:16]))
    if not pairs:
        raise UsageError(f"key file {str(path)!r} holds no key: need one `tenant:key` a line")
    return pairs


def _bearer(authorization: bytes | None) -> bytes:
    scheme, _, key = (authorization or b"").partition(b" ")
    return hashlib.sha256(key.strip() if scheme.lower() == b"bearer" else b"").digest()


def _unauthorized() -> RequestError:
    return RequestError(
        "API key is missing or wrong: send it as `Authorization: Bearer KEY`",
        status=401,
        kind="authentication_error",
        code="invalid_api_key",
    )
