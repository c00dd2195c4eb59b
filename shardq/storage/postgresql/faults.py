"""The driver's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

import re

import psycopg

from shardq.errors import (
    InvalidMessage,
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
)
from shardq.storage.abilities import Locked

__all__ = ["is_disturbed", "is_elsewhere", "is_without_schema", "translate", "unconfirmed"]

_DISTURBED = frozenset(("40001", "40P01"))
_APPLY = "run `shardq schema apply`, or upgrade shardq if it is older than the schema"
_WITHOUT_SCHEMA = frozenset(("3F000", "42P01"))
_OF_ANOTHER_VERSION = frozenset(("42703", "42883"))
_READ_ONLY = "25006"
_LOCKED = "55P03"
_WRONG_LOGIN = "refused the login: check user, password and the server's pg_hba.conf"
_REMEDIES = {
    "28000": _WRONG_LOGIN,
    "28P01": _WRONG_LOGIN,
    "3D000": "does not exist: create the database, or correct its name in the URL",
    "42501": "refused the request: give this user its rights on the schema",
    _READ_ONLY: "takes no writes: name the primary in the URL, or all servers; if it is the primary, set "
    "default_transaction_read_only = off for this user, and begin no transaction with READ ONLY",
    "53100": "is short of disk space: free some",
    "26000": "lost a prepared statement, as a pooler between does: add prepare=false to the URL",
    "42P05": "has another prepared statement of that name, as a pooler between does: add prepare=false to the URL",
}
_PASSING = frozenset((_READ_ONLY, "53100", "26000", "42P05"))
_TOO_LARGE = frozenset(("54000",))
_REFUSED = ("22", "23")
_OTHERS = "had other transactions in the way all the time: try again"
_BUSY = {
    "40001": _OTHERS,
    "40P01": _OTHERS,
    _LOCKED: "is locked by another transaction, maybe one of an application that is open: wait until it has ended",
    "57014": "had a request cancelled, by its statement_timeout or by an administrator: try again",
    "25P03": "ended a transaction that stood still, by its idle_in_transaction_session_timeout: try again",
    "25P04": "ended a transaction that took too long, by its transaction_timeout: try again",
    "53200": "is short of memory, or of locks (max_locks_per_transaction): try again",
    "53300": "has no connection left: raise max_connections there, or the CONNECTION LIMIT of this user or database, "
    "or max_client_conn of a pooler, or lower pool_size in the URLs",
}


# The server's reasons for refusing a connection come without a code, and so do those of PgBouncer.
_SAID = {
    "password authentication failed": "28P01",
    '"trust" authentication failed': "28P01",
    "SASL authentication failed": "28P01",
    "certificate authentication failed": "28P01",
    "no such user": "28P01",
    "no password supplied": "28P01",
    "no pg_hba.conf entry": "28000",
    "session is read-only": _READ_ONLY,
    "remaining connection slots": "53300",
    "too many clients": "53300",
    "too many connections": "53300",
    "no more connections allowed": "53300",
}
_MISSING = re.compile('(role|database) ".*" does not exist')
_MISSING_CODES = {"role": "28000", "database": "3D000"}


def is_elsewhere(error: psycopg.Error) -> bool:
    """Return True when the server has ended, or another one is the primary by now: no connection to it is of use."""
    return _is_broken(error) or _code(error) == _READ_ONLY


def _is_broken(error: psycopg.Error) -> bool:
    """Return True when the session has ended; if that was at the commit, it may have been carried out."""
    code, severity = _code(error), error.diag.severity_nonlocalized
    return (
        code.startswith(("08", "57P")) or severity == "PANIC" or (severity == "FATAL" and code not in _BUSY)
    )


def is_disturbed(error: psycopg.Error) -> bool:
    """Return True when another transaction got ahead of this one, which has done nothing and may be tried again."""
    return error.sqlstate in _DISTURBED


def is_without_schema(error: BaseException) -> bool:
    """Return True when there is no schema yet."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _WITHOUT_SCHEMA


def translate(error: psycopg.Error, where: str, *, writing: bool = False) -> ShardqError:
    """Return the error to raise from this one; ``writing``: the change may have been made already."""
    text, code = _text(error), _code(error)
    if _is_broken(error) and (writing or code not in _REMEDIES):
        return _broken(error, text, where, writing=writing)
    if code in _WITHOUT_SCHEMA | _OF_ANOTHER_VERSION:
        missing = code in _WITHOUT_SCHEMA
        remedy = "create a queue, or run `shardq schema apply`" if missing else _APPLY
        return SchemaMismatch(
            f"{where} lacks shardq's schema, or a part of it: {remedy} ({text})", missing=missing
        )
    if code in _TOO_LARGE:
        return MessageTooLarge(f"{where} cannot hold so large a bundle: send fewer messages at once ({text})")
    if code.startswith(_REFUSED):
        return InvalidMessage(f"{where} cannot hold a value: send another one ({text})")
    if code == _LOCKED:
        return Locked(f"{where} {_BUSY[code]} ({text})")
    remedy = _BUSY.get(code) or _REMEDIES.get(code, "refused a request")
    return StoreUnavailable(f"{where} {remedy} ({text})", retryable=code in _PASSING or code in _BUSY)


def _broken(error: psycopg.Error, text: str, where: str, *, writing: bool) -> ShardqError:
    if writing:
        return OutcomeUnknown(f"{where} did not say whether it wrote: repeat the call ({text})")
    misused = isinstance(error, psycopg.ProgrammingError | psycopg.NotSupportedError)
    return StoreUnavailable(
        f"{where} cannot be reached: check hosts, port, login, TLS and network, and that it runs ({text})",
        retryable=not misused,
    )


def unconfirmed(text: str, where: str) -> OutcomeUnknown:
    """Return the error to raise when a commit was carried out, but no standby has confirmed it."""
    return OutcomeUnknown(f"{where} did not wait for its standby: repeat the call ({text})")


def _code(error: psycopg.Error) -> str:
    """Return the state that the server reported; 08000 if it reported none."""
    if error.sqlstate is not None:
        return error.sqlstate
    text = str(error)
    if (missing := _MISSING.search(text)) is not None:
        return _MISSING_CODES[missing[1]]
    return next((code for said, code in _SAID.items() if said in text), "08000")


def _text(error: psycopg.Error) -> str:
    first = error.diag.message_primary or str(error)
    return f"{type(error).__name__}: {' '.join(first.split())}"[:300]
