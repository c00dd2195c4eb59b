"""SQLite's errors as shardq's: the only place where they are translated."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TypeVar

from shardq.errors import (
    InvalidMessage,
    InvalidSetting,
    MessageTooLarge,
    OutcomeUnknown,
    SchemaMismatch,
    ShardqError,
    StoreUnavailable,
)

__all__ = ["busy", "damage", "is_busy", "is_unreadable", "is_unwritable", "translate", "translate_os"]

T = TypeVar("T", bound=sqlite3.Error)

_BUSY = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
_PASSING = _BUSY | {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM}
_UNCERTAIN = frozenset((sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT))
_UNREADABLE = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_UNWRITABLE = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE))
_REFUSALS = frozenset((sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH))
_REMEDIES = {
    sqlite3.SQLITE_BUSY: "is locked by another connection, of this process or another: wait until its transaction has "
    "ended, raise busy_timeout, or send with the client that client.transaction() gave if it is yours",
    sqlite3.SQLITE_LOCKED: "is locked by another connection; wait, or raise busy_timeout",
    sqlite3.SQLITE_PROTOCOL: "is locked by another process; keep it on a local disk and try again",
    sqlite3.SQLITE_NOTADB: "is not a SQLite database; give another path, or put a backup in its place with "
    "`shardq restore BACKUP`",
    sqlite3.SQLITE_CORRUPT: "is damaged; put a backup in its place with `shardq restore BACKUP`, or rescue it with "
    "`sqlite3 FILE .recover`",
    sqlite3.SQLITE_READONLY: "cannot be written; give this user write access to the file and its folder",
    sqlite3.SQLITE_PERM: "cannot be opened; give this user access to the file and its folder",
    sqlite3.SQLITE_AUTH: "cannot be opened; give this user access to the file and its folder",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full or a quota is reached; free some space",
    sqlite3.SQLITE_IOERR: "could not be read or written; check the disk and its free space",
    sqlite3.SQLITE_NOMEM: "could not be used: memory is short; free some",
}


def is_busy(error: sqlite3.Error) -> bool:
    """Return True for an error that waiting a little may cure: another process holds a lock."""
    return _code(error) in _BUSY


def is_unreadable(error: sqlite3.Error) -> bool:
    """Return True when the file is damaged, or no database."""
    return _code(error) in _UNREADABLE


def is_unwritable(error: sqlite3.Error) -> bool:
    """Return True when there was no room for what was to be written."""
    return getattr(error, "sqlite_errorcode", 0) in _UNWRITABLE


def busy(reason: str) -> sqlite3.OperationalError:
    """Return an error as SQLite raises it when the file cannot be used for the moment."""
    return _made(sqlite3.OperationalError(reason), sqlite3.SQLITE_BUSY)


def damage(found: str) -> sqlite3.DatabaseError:
    """Return an error as SQLite raises it when it meets what an integrity check has found."""
    return _made(sqlite3.DatabaseError(found), sqlite3.SQLITE_CORRUPT)


def translate(error: sqlite3.Error, path: Path, *, committing: bool = False) -> ShardqError:
    """Return the error to raise from this one; ``committing``: the change may have been made already."""
    code = _code(error)
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(error, path)
    if code == sqlite3.SQLITE_TOOBIG:
        return MessageTooLarge(
            f"a bundle is larger than SQLite's limit ({error}): send fewer messages at once"
        )
    if code in _REFUSALS:
        return InvalidMessage(f"SQLite file {path} cannot hold a value ({error}): send another one")
    if code == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return SchemaMismatch(f"SQLite file {path} lacks a part of shardq's schema ({error}): restore it")
    text = f"SQLite file {path} {_REMEDIES.get(code, 'refused a request')} ({error})"
    if committing and code in _UNCERTAIN:
        return OutcomeUnknown(text)
    return StoreUnavailable(text, retryable=code in _PASSING)


def translate_os(error: OSError, path: Path | str) -> ShardqError:
    """Return the error to raise when the operating system does not even say whether there is a file."""
    return StoreUnavailable(
        f"SQLite file {path} cannot be reached; give this user access to its folder ({error})",
        retryable=False,
    )


def without_folder(path: Path) -> StoreUnavailable:
    """Return the error to raise when the file cannot be made where it is to be."""
    return StoreUnavailable(
        f"SQLite file {path} cannot be made: its folder does not exist; make it first", retryable=False
    )


def _cannot_open(error: sqlite3.Error, path: Path) -> ShardqError:
    try:
        if path.is_dir():
            return InvalidSetting(f"SQLite path {path} is a folder: give the path of a file in it")
        if not path.parent.is_dir():
            return without_folder(path)
    except OSError as unreachable:
        return translate_os(unreachable, path)
    return StoreUnavailable(
        f"SQLite file {path} cannot be opened; give this user read and write access to it and its folder "
        f"({error})",
        retryable=False,
    )


def _made(error: T, code: int) -> T:
    error.sqlite_errorcode = code
    return error


def _code(error: sqlite3.Error) -> int:
    # An extended code keeps the primary one in its low byte.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
