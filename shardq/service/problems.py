"""Errors as answers: the status and the problem details (RFC 9457) of each."""

from __future__ import annotations

import msgspec

from shardq import errors
from shardq.base.texts import masked
from shardq.service.store_access import Forbidden, NotFound

__all__ = ["Problem", "Refused", "problem_of"]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error as an answer. ``code`` is stable; ``retryable`` says whether the same request may succeed later.

    ``retry_after`` is the number of seconds after which it may, where that is known.
    """

    title: str
    status: int
    code: str
    detail: str
    retryable: bool = False
    retry_after: int | None = None


class Refused(Exception):
    """Raised for a request that is refused before anything is asked of the store."""

    def __init__(self, status: int, code: str, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.retry_after = status, code, retry_after


_STATUSES: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    (Forbidden, 403),
    (
        (
            NotFound,
            errors.QueueNotFound,
            errors.ScheduleNotFound,
            errors.ConsumerNotFound,
            errors.BodyNotFound,
        ),
        404,
    ),
    ((errors.QueueExists, errors.ScheduleExists, errors.ConsumerAlive, errors.UniqueKeyTaken), 409),
    ((errors.QueuePaused, errors.QueueFull, errors.LeaseLost, errors.UnsupportedByStore), 409),
    (errors.MessageTooLarge, 413),
    ((errors.StoreUnavailable, errors.OutcomeUnknown, errors.SchemaMismatch, errors.Closed), 503),
    (errors.UnreadableSettings, 500),
    (errors.ShardqError, 400),
)

_TITLES = {
    400: "Bad request",
    401: "Not logged in",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    429: "Too many requests",
    500: "Unreadable data",
    503: "Store unavailable",
}


def problem_of(error: Exception) -> Problem | None:
    """Return the problem of an error; None for one that is a defect of the service."""
    if isinstance(error, Refused):
        status, detail, retryable, after = (
            error.status,
            str(error),
            error.status in (429, 503),
            error.retry_after,
        )
    elif isinstance(error, errors.ShardqError):
        status = next(status for kinds, status in _STATUSES if isinstance(error, kinds))
        detail, retryable, after = masked(str(error)), error.retryable, None
    else:
        return None
    title = _TITLES.get(status, "Error")
    return Problem(
        title=title, status=status, code=error.code, detail=detail, retryable=retryable, retry_after=after
    )
