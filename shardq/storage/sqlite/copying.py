"""Copies of the file: a backup beside running clients, and the restore of one.

Both copy one file into another, the target. The copy is made under a temporary name in the target's folder, checked,
written to the disk, and renamed. A crash at any moment leaves the target that was there before, or the new one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from shardq.errors import InvalidSetting, SchemaMismatch, StoreUnavailable
from shardq.storage.abilities import SavedFile
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.faults import damage, is_busy, is_unreadable, is_unwritable, translate
from shardq.storage.sqlite.guarantees import find_damage
from shardq.storage.sqlite.log import side_files
from shardq.storage.sqlite.session import Patience
from shardq.storage.sqlite.tables import BlobConnection

__all__ = ["copy_file"]

_PART = ".shardq-part"
_PAGES = 1_000  # copied at a time; Ctrl-C ends the copy in between
_FEWEST_RIGHTS = stat.S_IRUSR | stat.S_IWUSR


def copy_file(
    source: Path, target: Path, patience: Patience, *, overwrite: bool, at_rest: bool = False
) -> SavedFile:
    """Copy one state of a file of queues, which may be in use, and check the copy before it gets its name.

    A source ``at_rest`` may be in a place that this user cannot change. With ``overwrite`` the target may exist. Then
    no client may be connected to it: others are kept out until it is replaced, and its log is removed. Raises
    InvalidSetting, SchemaMismatch for a file that is not of shardq, and StoreUnavailable; the target is unchanged then.
    """
    target = Path(os.path.realpath(target))
    _check_names(source, target, overwrite=overwrite)
    try:
        with _part_of(target) as part, _shut(target, patience):
            _copy(source, part, patience, at_rest=at_rest)
            found = _examine(part, source, target)
            _give_rights(part, target if target.exists() else source)
            _check_names(source, target, overwrite=overwrite)
            _put_in_place(part, target)
    except OSError as error:
        raise StoreUnavailable(
            f"SQLite file {target} cannot be written: give this user access to its folder, free some space, or give "
            f"another path ({error})",
            retryable=False,
        ) from error
    return found


def _check_names(source: Path, target: Path, *, overwrite: bool) -> None:
    if not source.is_file():
        raise InvalidSetting(f"SQLite file {source} does not exist: give the path of a file that does")
    if not target.parent.is_dir():
        raise InvalidSetting(f"folder {target.parent} of file {target.name} does not exist: make it first")
    if target in side_files(source) or (target.exists() and target.samefile(source)):
        raise InvalidSetting(
            f"SQLite file {source} cannot be copied to {target}, which is a part of it: give another path"
        )
    if target.exists() and not target.is_file():
        raise InvalidSetting(f"{target} is no file: give the path of a file")
    if target.exists() and not overwrite:
        raise InvalidSetting(f"file {target} exists: give another path, or overwrite it (`--overwrite`)")


@contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    """Hold the file for the copy, empty at first. One that a killed process has left is used again."""
    part = target.with_name(target.name + _PART)
    descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, _FEWEST_RIGHTS)
    try:
        _claim(part, descriptor)
        try:
            os.ftruncate(descriptor, 0)
            yield part
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)


def _claim(part: Path, descriptor: int) -> None:
    """Lock the part. Another process may have had it, and renamed it meanwhile."""
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), part.stat()):
            return
    raise StoreUnavailable(f"file {part} is being written by another backup or restore: wait for its end")


@contextmanager
def _shut(target: Path, patience: Patience) -> Iterator[None]:
    """Keep clients from the target, if it exists, and empty its log into it."""
    if not target.exists():
        yield
        return
    try:
        sql = patience(_lock, target)
    except sqlite3.Error as error:
        if not is_busy(error):
            raise translate(error, target) from error
        raise StoreUnavailable(
            f"SQLite file {target} is in use: end the processes that are connected to it, which "
            f"`fuser -v {target}` lists, and try again"
        ) from error
    except SchemaMismatch as error:
        raise SchemaMismatch(
            f"SQLite file {target} belongs to another application, or its first bytes are damaged: move it away "
            "first, or give another path"
        ) from error
    with closing(sql):
        yield


def _lock(target: Path, *, readable: bool = True) -> sqlite3.Connection:
    """Return a connection that no other one can be beside; SQLITE_BUSY when there is one.

    SQLite holds a shared lock on the file for as long as a connection has its log open. In exclusive mode it takes the
    exclusive one before it opens the log, and keeps it. When this connection is closed after the target was replaced,
    SQLite sees that and leaves the log of the new file alone.
    """
    if not readable:  # SQLite opens a log that is not empty before it reads the file, whatever is in either
        with side_files(target)[0].open("ab") as log:
            log.write(b"\0")
    sql = sqlite3.connect(f"{target.as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None)
    try:
        sql.execute("PRAGMA locking_mode = EXCLUSIVE")
        sql.execute("BEGIN EXCLUSIVE")
        schema.check_owner(sql)
        sql.execute("COMMIT")
        sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.DatabaseError as error:
        if is_unreadable(error) and not readable:
            return sql  # the lock is held all the same
        sql.close()
        if is_unreadable(error):
            return _lock(target, readable=False)
        raise
    except BaseException:
        sql.close()
        raise
    return sql


def _copy(source: Path, part: Path, patience: Patience, *, at_rest: bool) -> None:
    """Copy the state of the file that the first read finds: commits of others beside it do not restart the copy."""
    try:
        with (
            _opened_at_rest(source)
            if at_rest and not _is_open(source)
            else closing(patience(Connection.open, source).sql) as live
        ):
            live.execute("BEGIN")
            if not schema.recognise(live):
                raise SchemaMismatch(f"SQLite file {source} is empty: give one that has queues")
            with closing(sqlite3.connect(part, isolation_level=None)) as saved:
                saved.execute("PRAGMA journal_mode = OFF")  # the part is of no use before it is complete
                saved.execute(
                    "PRAGMA fullfsync = ON"
                )  # it is written to the disk at the end, see connections
                live.backup(saved, pages=_PAGES, progress=lambda *_: None)
    except sqlite3.Error as error:
        raise translate(error, part if is_unwritable(error) else source) from error


@contextmanager
def _opened_at_rest(source: Path) -> Iterator[sqlite3.Connection]:
    """Read a file that no other process has open, without a lock, a log or any other change beside it."""
    before = source.stat()
    address = f"{source.as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None, factory=BlobConnection)) as sql:
        yield sql
    after = source.stat()
    if _is_open(source) or (before.st_ino, before.st_mtime_ns) != (after.st_ino, after.st_mtime_ns):
        raise StoreUnavailable(f"SQLite file {source} came into use while it was read: try again")


def _is_open(source: Path) -> bool:
    """Return whether SQLite keeps anything beside the file: a log, or a journal of a change that was cut off."""
    return any(beside.exists() for beside in side_files(source))


def _examine(part: Path, source: Path, target: Path) -> SavedFile:
    try:
        with closing(sqlite3.connect(f"{part.as_uri()}?mode=ro&immutable=1", uri=True)) as sql:
            if found := find_damage(sql):
                raise damage(found)
            (queues,) = sql.execute("SELECT count(*) FROM [queue]").fetchone()
            return SavedFile(str(target), part.stat().st_size, schema.version(sql), queues)
    except sqlite3.Error as error:
        raise translate(error, source) from error


def _give_rights(part: Path, like: Path) -> None:
    """Give the copy the owner and the rights of another file, as far as this user may."""
    status = like.stat()
    with suppress(PermissionError):
        os.chown(part, status.st_uid, status.st_gid)
        part.chmod(stat.S_IMODE(status.st_mode) | _FEWEST_RIGHTS)


def _put_in_place(part: Path, target: Path) -> None:
    """Rename the copy. The old log goes first: SQLite would apply it to whatever file is beside it."""
    for beside in side_files(target):
        beside.unlink(missing_ok=True)
    _sync(target.parent)
    part.replace(target)
    _sync(target.parent)


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
