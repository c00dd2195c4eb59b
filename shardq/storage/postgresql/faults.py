"""The driver's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

import psycopg

from shardq.errors import (
    InvalidMessage,
    InvalidSetting,
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
)

__all__ = ["is_broken", "is_disturbed", "is_without_schema", "translate", "unconfirmed"]

_DISTURBED = frozenset(("40001", "40P01"))
_WITHOUT_SCHEMA = frozenset(("3F000", "42P01"))
_OF_ANOTHER_VERSION = frozenset(("42703", "42883"))
_WRONG_LOGIN = "refused the login: check user, password and the server's pg_hba.conf"
_REMEDIES = {
    "28000": _WRONG_LOGIN,
    "28P01": _WRONG_LOGIN,
    "3D000": "does not exist: create the database, or correct its name in the URL",
    "42501": "refused the request: give this user its rights on the schema",
    "25006": "takes no writes: name the primary in the URL, with target_session_attrs=read-write",
    "53100": "is short of disk space: free some",
    "26000": "lost a prepared statement, as a pooler between does: add prepare=false to the URL",
    "42P05": "has another prepared statement of that name, as a pooler between does: add prepare=false to the URL",
}
_PASSING = frozenset(("25006", "53100", "26000", "42P05"))
_TOO_LARGE = frozenset(("54000", "53200"))
_BUSY = {
    "55P03": "is locked by another transaction, maybe one of an application that is open: wait until it has ended",
    "57014": "had a request cancelled, by its statement_timeout or by an administrator: try again",
    "25P03": "ended a transaction that stood still, by its idle_in_transaction_session_timeout: try again",
    "25P04": "ended a transaction that took too long, by its transaction_timeout: try again",
    "53300": "has no connection left: raise max_connections there, or lower pool_size in the URLs",
}


def is_broken(error: psycopg.Error) -> bool:
    """Return True when the connection is lost, so that others to the same server may be, too."""
    code = error.sqlstate
    return code is None or code.startswith(("08", "57P"))


def is_disturbed(error: psycopg.Error) -> bool:
    """Return True when another transaction got ahead of this one, which has done nothing and may be tried again."""
    return error.sqlstate in _DISTURBED


def is_without_schema(error: BaseException) -> bool:
    """Return True when there is no schema yet."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _WITHOUT_SCHEMA


def translate(error: psycopg.Error, where: str, *, writing: bool = False) -> ShardqError:
    """Return the error to raise from this one; ``writing``: the change may have been made already."""
    text, code = _text(error), error.sqlstate
    if writing and is_broken(error):
        return OutcomeUnknown(f"{where} did not say whether it wrote: repeat the call ({text})")
    if code is None or code.startswith(("08", "57P")):
        return StoreUnavailable(
            f"{where} cannot be reached: check hosts, port, TLS and network, and that it runs ({text})",
            retryable=not isinstance(error, psycopg.ProgrammingError | psycopg.NotSupportedError),
        )
    if code in _WITHOUT_SCHEMA:
        return SchemaMismatch(
            f"{where} has no schema of shardq yet: create a queue, or run `shardq schema apply` ({text})",
            missing=True,
        )
    if code in _OF_ANOTHER_VERSION:
        return SchemaMismatch(f"{where} lacks a part of shardq's schema ({text}): run `shardq schema apply`")
    if code in _DISTURBED:
        return StoreUnavailable(f"{where} had other transactions in the way all the time: try again ({text})")
    if code in _BUSY:
        return StoreUnavailable(f"{where} {_BUSY[code]} ({text})")
    if code in _TOO_LARGE:
        return MessageTooLarge(f"{where} cannot hold so large a bundle ({text}): send fewer messages at once")
    if code.startswith("22") or code.startswith("23"):
        return InvalidMessage(f"{where} cannot hold a value ({text}): send another one")
    remedy = _REMEDIES.get(code, "refused a request")
    return StoreUnavailable(f"{where} {remedy} ({text})", retryable=code in _PASSING)


def unconfirmed(text: str, where: str) -> OutcomeUnknown:
    """Return the error to raise when a commit was carried out, but no standby has confirmed it."""
    return OutcomeUnknown(f"{where} did not wait for its standby: repeat the call ({text})")


def bad_settings(where: str, reason: str) -> InvalidSetting:
    """Return the error to raise for a URL that the driver refuses."""
    return InvalidSetting(f"{where} cannot be used as the URL says ({reason}): correct the URL")


def _text(error: psycopg.Error) -> str:
    first = error.diag.message_primary or str(error)
    return f"{type(error).__name__}: {' '.join(first.split())}"[:300]
