"""The driver's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage

from shardq.errors import (
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
)

__all__ = ["DRIVER_ERRORS", "after_a_write", "translate"]

DRIVER_ERRORS = (DriverException, ErrorMessage, NoHostAvailable, ConnectionException, OSError)
_LASTING = (AuthenticationFailed, Unauthorized, InvalidRequest)
_REFUSALS = (Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage)  # nothing was begun
_UNCERTAIN = (WriteTimeout, WriteFailure, OperationTimedOut, ConnectionException, OSError)


@contextmanager
def after_a_write() -> Iterator[None]:
    """Say that the outcome is unknown when something fails after a part of the work was done."""
    try:
        yield
    except StoreUnavailable as error:
        raise OutcomeUnknown(f"a part of it is done: repeat the call ({error})") from error


def translate(error: BaseException, where: str, *, writing: bool) -> ShardqError:
    """Return the error to raise from this one; ``where`` names the cluster without credentials."""
    causes = _causes(error)
    lasting = next((each for each in causes if isinstance(each, _LASTING)), None)
    if lasting is not None:
        return _refused(lasting, where)
    if isinstance(error, Unavailable):
        return StoreUnavailable(
            f"{where} has {error.alive_replicas} of {error.required_replicas} replicas that the consistency needs: "
            "start the others, or lower `consistency` in the URL"
        )
    if writing and _may_be_done(error, causes):
        return OutcomeUnknown(f"{where} did not say whether it wrote: repeat the call ({_name(error)})")
    if isinstance(error, NoHostAvailable):
        return StoreUnavailable(f"{where} cannot be reached: check hosts, port and network ({_name(error)})")
    return StoreUnavailable(f"{where} did not answer as it should: try again ({_name(error)})")


def _may_be_done(error: BaseException, causes: Sequence[BaseException]) -> bool:
    """Tell whether a write that ended so may have been carried out; what is not known to be harmless may."""
    if isinstance(error, NoHostAvailable):
        return any(isinstance(cause, _UNCERTAIN) for cause in causes)
    return not isinstance(error, _REFUSALS)


def _refused(error: BaseException, where: str) -> ShardqError:
    text = str(error)
    if isinstance(error, AuthenticationFailed):
        return StoreUnavailable(
            f"{where} refused the login: check user and password in the URL", retryable=False
        )
    if isinstance(error, Unauthorized):
        return StoreUnavailable(
            f"{where} refused the request: give this user SELECT and MODIFY on the keyspace ({text})",
            retryable=False,
        )
    if "too large" in text:
        return MessageTooLarge(
            f"a bundle is above the limit of {where} ({text}): send fewer messages at once"
        )
    if "Keyspace" in text or "table" in text or "keyspace" in text:
        return SchemaMismatch(
            f"{where} has no keyspace or table of shardq ({text}): check the URL's keyspace, or run `shardq create`"
        )
    return StoreUnavailable(f"{where} refused a request ({text})", retryable=False)


def _causes(error: BaseException) -> tuple[BaseException, ...]:
    if isinstance(error, NoHostAvailable):
        errors = error.errors.values() if isinstance(error.errors, dict) else ()
        return (error, *(each for each in errors if isinstance(each, BaseException)))
    return (error,)


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
