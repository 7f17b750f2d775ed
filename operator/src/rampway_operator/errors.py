"""What can go wrong between the operator and the API server, sorted by what is to be done about it.

It does not know which call failed for which reason; `cluster/client.py` sorts answers into these kinds.
"""

from __future__ import annotations

__all__ = [
    "ApiError",
    "Conflict",
    "NotFound",
    "Refused",
    "SettingsError",
    "Unauthorized",
    "Unavailable",
    "error_for_status",
]


class SettingsError(Exception):
    """The operator's own settings cannot be used; the message lists every fault in one line."""


class ApiError(Exception):
    """An answer of the API server that is not a success. `status` is 0 when there was no answer."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Conflict(ApiError):
    """Someone else wrote first, or the name is taken: read again and decide again, at once."""


class NotFound(ApiError):
    """The object is gone: the next tick makes it again, or forgets the key."""


class Refused(ApiError):
    """The request itself is not acceptable (400, 403, 422): repeating it soon cannot help."""


class Unauthorized(ApiError):
    """The credentials are not accepted (any more): log in again."""


class Unavailable(ApiError):
    """No answer, too many requests or a server fault: repeat later. Never a verdict on a candidate."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after
        """Seconds the server asks to wait; 0 when it asks nothing."""


def error_for_status(
    status: int, message: str, *, reason: str = "", retry_after: float = 0.0
) -> ApiError:
    """The error kind for an HTTP status that is not a success."""
    if status == 401:
        return Unauthorized(message, status=status, reason=reason)
    if status in (404, 410):
        return NotFound(message, status=status, reason=reason)
    if status == 409:
        return Conflict(message, status=status, reason=reason)
    if status == 429 or status >= 500:
        return Unavailable(message, status=status, reason=reason, retry_after=retry_after)
    return Refused(message, status=status, reason=reason)
