"""The driver's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

from collections.abc import Sequence

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import (
    ConfigurationException,
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    SyntaxException,
)

from shardq.errors import (
    InvalidSetting,
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
)

__all__ = ["DRIVER_ERRORS", "TombstonesRefused", "translate"]

DRIVER_ERRORS = (DriverException, ErrorMessage, NoHostAvailable, ConnectionException, OSError)
_LASTING = (AuthenticationFailed, Unauthorized, InvalidRequest, ConfigurationException, SyntaxException)
_REFUSALS = (Unavailable, OverloadedErrorMessage, IsBootstrappingErrorMessage)  # nothing was begun
_NOT_LOOKED_UP = "Unable to perform auth"  # entication, or orization: nodes that know are down
_TOO_LARGE = ("too large", "exceeds allowed maximum")  # the server has no separate error for it
_UNCERTAIN = (WriteTimeout, WriteFailure, OperationTimedOut, ConnectionException, OSError)
_TOO_MANY_TOMBSTONES = 1  # of the native protocol's reasons for a failure


class TombstonesRefused(StoreUnavailable):
    """Raised when the server gives a read up because it crosses too many tombstones. Smaller reads get through."""

    code = StoreUnavailable.code


def translate(error: BaseException, where: str, *, writing: bool, conditional: bool = False) -> ShardqError:
    """Return the error to raise from this one; ``where`` names the cluster without credentials.

    A ``conditional`` write is one of several rounds. The replicas may have accepted it when there are too few for the
    last one; earlier ones are at a serial consistency.
    """
    causes = _causes(error)
    lasting = next((each for each in causes if _is_lasting(each)), None)
    if lasting is not None:
        return _refused(lasting, where)
    accepted = conditional and not ConsistencyLevel.is_serial(getattr(error, "consistency", None))
    if isinstance(error, Unavailable) and not accepted:
        return StoreUnavailable(
            f"{where} has {error.alive_replicas} of {error.required_replicas} replicas that the consistency needs: "
            "start the others"
        )
    if isinstance(error, ReadFailure) and _TOO_MANY_TOMBSTONES in (error.error_code_map or {}).values():
        return TombstonesRefused(f"{where} gave up a read of too many tombstones: try again ({_name(error)})")
    if writing and (isinstance(error, Unavailable) or _may_be_done(error, causes)):
        return OutcomeUnknown(f"{where} did not say whether it wrote: repeat the call ({_name(error)})")
    if isinstance(error, NoHostAvailable | UnresolvableContactPoints):
        return _unreachable(causes, where)
    return StoreUnavailable(f"{where} did not answer as it should: try again ({_name(error)})")


def _is_lasting(error: BaseException) -> bool:
    """Return whether repeating cannot help. A login that a server could not look up, because others are down, can."""
    text = str(error)
    if _NOT_LOOKED_UP in text:
        return False
    return isinstance(error, _LASTING) or "[SSL" in text or any(words in text for words in _TOO_LARGE)


def _unreachable(causes: Sequence[BaseException], where: str) -> ShardqError:
    if len(causes) > 1:
        reason = (
            f"check hosts, port and network, and whether it wants ssl=true or a `cert` ({_name(causes[0])})"
        )
    elif isinstance(causes[0], UnresolvableContactPoints):
        reason = "no host of the URL has an address: check their names"
    else:
        reason = "none of its nodes is in the data centre `local_dc`, or all of them are down: check both"
    return StoreUnavailable(f"{where} cannot be reached: {reason}")


def _may_be_done(error: BaseException, causes: Sequence[BaseException]) -> bool:
    """Return whether a write that ended so may have been carried out; what is not known to be harmless may."""
    if isinstance(error, NoHostAvailable):
        return any(isinstance(cause, _UNCERTAIN) for cause in causes)
    return not isinstance(error, _REFUSALS)


def _refused(error: BaseException, where: str) -> ShardqError:
    text = str(error)
    if isinstance(error, AuthenticationFailed | Unauthorized) or "[SSL" in text:
        return StoreUnavailable(_denied(error, where), retryable=False)
    if any(words in text for words in _TOO_LARGE):
        return MessageTooLarge(
            f"a bundle is above the limit of {where} ({text}): send fewer messages at once"
        )
    if isinstance(error, ConfigurationException):
        return InvalidSetting(f"{where} cannot be made: check `replication` in the URL ({text})")
    if "Keyspace" in text or "table" in text or "keyspace" in text:
        return SchemaMismatch(
            f"{where} has no keyspace or table of shardq ({text}): check the URL's keyspace, or run `shardq create`",
            missing=True,
        )
    return StoreUnavailable(f"{where} refused a request ({text})", retryable=False)


def _denied(error: BaseException, where: str) -> str:
    if isinstance(error, AuthenticationFailed):
        return f"{where} refused the login: check user and password in the URL"
    if isinstance(error, Unauthorized):
        return (
            f"{where} refused the request: give this user SELECT and MODIFY on the keyspace, and CREATE for "
            f"`shardq create` ({error})"
        )
    return (
        f"{where} cannot be trusted, or does not trust this client: check `ssl`, `ca`, `cert` and `key` in the URL "
        f"({_name(error)})"
    )


def _causes(error: BaseException) -> tuple[BaseException, ...]:
    """Return what happened at each host, then the error itself."""
    if isinstance(error, NoHostAvailable):
        errors = error.errors.values() if isinstance(error.errors, dict) else ()
        return (*(each for each in errors if isinstance(each, BaseException)), error)
    return (error,)


def _name(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:300]
