"""Every error the server raises on purpose.

RampwayServerError
├── UsageError            the user's flag, file or environment is wrong: one line, exit status 2
├── RequestError          the client's request is wrong or cannot be taken: an HTTP status in OpenAI's shape
│   └── ChatTemplateError the model's chat template refused the messages
└── EngineDead            our own fault: the engine thread ended; the process must end too
"""

from __future__ import annotations

__all__ = ["ChatTemplateError", "EngineDead", "RampwayServerError", "RequestError", "UsageError"]


class RampwayServerError(Exception):
    """Base of all errors of this distribution."""


class UsageError(RampwayServerError):
    """Bad flag, file or environment; the message is one line: what, got, need, remedy."""


class RequestError(RampwayServerError):
    """A request that is refused, as OpenAI's error object with an HTTP status."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_seconds = retry_after_seconds


class ChatTemplateError(RequestError):
    """The chat template raised, or could not be rendered within its limits."""


class EngineDead(RampwayServerError):
    """The engine thread ended with an error; nothing can be served any more."""
