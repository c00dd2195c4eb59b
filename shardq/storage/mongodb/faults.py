"""The driver's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from bson.errors import InvalidDocument
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    DocumentTooLarge,
    ExecutionTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
)

from shardq.errors import InvalidSetting, MessageTooLarge, OutcomeUnknown, ShardqError, StoreUnavailable

__all__ = ["DRIVER_ERRORS", "confirmed", "spoils_client", "translate", "write_error"]

DRIVER_ERRORS = (PyMongoError, InvalidDocument, OSError)
_TOO_LARGE = frozenset((10334, 17280, 17419, 257))  # the last one is a transaction
# It steps down, ends, or an operator ends the request; maybe between two documents of a write
_INTERRUPTED = frozenset((11602, 11600, 11601))
_NO_PRIMARY = _INTERRUPTED | {10107, 13435, 13436, 91, 189}
# Conflicts, locks, time limits of requests and transactions, write concern. Also: an index of a new collection that
# was interrupted, one that is made while the collection is changed, reads of dropped collections, and a mongos that
# has lost a shard or its primary
_BUSY = frozenset(
    (112, 251, 290, 24, 46, 50, 262, 90, 64, 100, 276, 26, 43, 175, 237, 6, 7, 89, 9001, 133, 12587)
)
_WRONG_LOGIN = "refused the login: check user, password and authSource in the URL"
_REMEDIES = {
    11: _WRONG_LOGIN,
    18: _WRONG_LOGIN,
    8000: _WRONG_LOGIN,  # Atlas
    13: "refused the request: give this user the roles readWrite and dbAdmin on the database, and name in the URL, by "
    "authSource, the database in which the user is defined",
    14031: "is short of disk space: free some",
}
_TIMEOUTS = re.compile(r" \(configured timeouts:[^)]*\)")  # the driver repeats them for each host
_NO_SESSIONS = "Sessions are not supported"
"""The driver's error for a connection to a member that was neither primary nor secondary when it was made.

It says so of every later request on it, also when the member is the primary.
"""
_OTHER_SET = ("does not have a replicaSet", "replica set name", "setName")


def translate(error: BaseException, where: str, *, writing: bool) -> ShardqError:
    """Return the error to raise from this one; ``where`` names the database without credentials."""
    if isinstance(error, BulkWriteError | WriteConcernError):
        return _partly_done(error, where)
    if isinstance(error, OperationFailure) and not isinstance(error, ExecutionTimeout):
        return _refused(error.code, str(error), where, writing=writing)
    for kind, make in _BEFORE_SENDING.items():
        if isinstance(error, kind):
            return make(_name(error), where)
    if isinstance(error, NotPrimaryError) and _is_no_primary(_code(error), writing=writing):
        return _no_primary(_name(error), where)
    if writing:
        return OutcomeUnknown(f"{where} did not say whether it wrote: repeat the call ({_name(error)})")
    return StoreUnavailable(f"{where} did not answer: try again, or check the network ({_name(error)})")


def spoils_client(error: BaseException) -> str:
    """Return why the driver's client would continue to raise an error, whatever the server does.

    Empty if it would not.
    """
    if isinstance(error, WaitQueueTimeoutError):
        return "no connection came free"
    if isinstance(error, ConfigurationError) and _NO_SESSIONS in str(error):
        return "a connection was made to a member that was no primary"
    return ""


def write_error(detail: Mapping[str, Any], where: str) -> ShardqError:
    """Return the error to raise for what a write command reports of one of its documents."""
    return _refused(int(detail.get("code", 0)), str(detail.get("errmsg", "")), where, writing=True)


def confirmed(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a command; raises, as the driver does not, where too few members have confirmed it."""
    if (detail := answer.get("writeConcernError")) is not None:
        raise WriteConcernError(str(detail.get("errmsg", "")), detail.get("code"), detail)
    return answer


def _unconfirmed(text: str, where: str) -> ShardqError:
    """Return the error to raise when a write was carried out, but not by as many members as it has to be."""
    return OutcomeUnknown(
        f"{where} did not confirm a write by as many members as asked: repeat the call ({text[:300]})"
    )


def _partly_done(error: BulkWriteError | WriteConcernError, where: str) -> ShardqError:
    """Return the error to raise when writes were carried out, but not all of them, or not confirmed."""
    if isinstance(error, BulkWriteError) and error.details["writeErrors"]:
        return write_error(error.details["writeErrors"][0], where)
    return _unconfirmed(str(error), where)


def _refused(code: int | None, text: str, where: str, *, writing: bool) -> ShardqError:
    """Return the error to raise for what the server says of a request."""
    text = text[:300]
    if _is_no_primary(code, writing=writing):
        return _no_primary(text, where)
    if code in _BUSY | _INTERRUPTED:
        kind = OutcomeUnknown if writing else StoreUnavailable
        return kind(f"{where} was too busy for a request, or interrupted: repeat it ({text})")
    if code in _TOO_LARGE:
        return _too_large(text, where)
    remedy = _REMEDIES.get(code or 0, f"refused a request ({text})")
    return StoreUnavailable(f"{where} {remedy}", retryable=False)


def _unreachable(text: str, where: str) -> ShardqError:
    if any(sign in text for sign in _OTHER_SET):
        return StoreUnavailable(
            f"{where} is not of the replica set that the URL names: correct replicaSet in the URL, or leave it out",
            retryable=False,
        )
    reason = _TIMEOUTS.sub("", text).partition(", Timeout:")[0]
    return StoreUnavailable(
        f"{where} cannot be reached: check hosts, port, TLS and network, and that there is a primary ({reason})"
    )


def _no_primary(text: str, where: str) -> ShardqError:
    return StoreUnavailable(f"{where} has no primary at this moment: try again ({text})")


def _too_large(text: str, where: str) -> ShardqError:
    return MessageTooLarge(
        f"a bundle is above the 16 MiB that a document of {where} may have: send fewer or smaller messages at once "
        f"({text[:80]})"
    )


def _misused(text: str, where: str) -> ShardqError:
    if _NO_SESSIONS in text:
        return _no_primary(text, where)
    return InvalidSetting(f"{where} cannot be used as the URL says ({text}): correct the URL")


def _no_connection(text: str, where: str) -> ShardqError:
    return StoreUnavailable(f"{where} has no free connection: raise maxPoolSize in the URL ({text})")


# Errors that the driver raises before it has sent anything.
_BEFORE_SENDING: dict[type[Exception], Callable[[str, str], ShardqError]] = {
    ServerSelectionTimeoutError: _unreachable,
    DocumentTooLarge: _too_large,
    InvalidDocument: _too_large,
    ConfigurationError: _misused,
    WaitQueueTimeoutError: _no_connection,
}


def _is_no_primary(code: int | None, *, writing: bool) -> bool:
    """Return whether nothing was done for lack of a primary; a write that was interrupted may be done in part."""
    return code in _NO_PRIMARY and not (writing and code in _INTERRUPTED)


def _code(error: NotPrimaryError) -> int:
    return int(error.details.get("code", 0)) if isinstance(error.details, Mapping) else 0


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
