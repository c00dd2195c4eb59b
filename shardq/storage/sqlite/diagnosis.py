"""Facts about the file for people who look after it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from shardq.errors import ShardqError
from shardq.storage.requests import Finding
from shardq.storage.sqlite import schema
from shardq.storage.sqlite.connections import Connection
from shardq.storage.sqlite.faults import translate, translate_os
from shardq.storage.sqlite.guarantees import check_access, check_file_system, check_release, find_damage
from shardq.storage.sqlite.log import log_of
from shardq.storage.sqlite.session import Patience
from shardq.storage.sqlite.tables import prefix_of

__all__ = ["diagnose"]

_FREE_SPACE = 256 * 1024 * 1024
_LARGE_LOG = 256 * 1024 * 1024
_PATIENCE_MS = 5_000  # while others write


def diagnose(path: Path, *, synchronous: str, prefix: str = "") -> tuple[Finding, ...]:
    """Inspect the file and its surroundings; changes nothing and makes nothing."""
    findings = [check_release(sqlite3.sqlite_version), _synchronous(synchronous)]
    try:
        findings += _around(path)
        if path.exists():
            findings += Patience(_PATIENCE_MS / 1000)(_inside, path, prefix)
    except OSError as error:
        findings.append(Finding("file", False, str(translate_os(error, path))))
    except sqlite3.Error as error:
        findings.append(Finding("database", False, str(translate(error, path))))
    except ShardqError as error:
        findings.append(Finding("schema", False, str(error)))
    return tuple(findings)


def _around(path: Path) -> Iterator[Finding]:
    yield from _folder(path.parent)
    if path.exists():
        yield from (Finding("file", True, str(path)), check_access(path), _size(path), _log(path))
    else:
        yield Finding("file", False, f"{path} does not exist", "create a queue, or give another path")


def _synchronous(level: str) -> Finding:
    if level == "full":
        return Finding("synchronous", True, level)
    value = f"{level}: a power failure may undo the last sends and acks"
    return Finding("synchronous", False, value, "leave `synchronous` out of the URL")


def _folder(folder: Path) -> Iterator[Finding]:
    import shutil  # noqa: PLC0415 - slow to import, and for a diagnosis only

    if not folder.is_dir():
        yield Finding("folder", False, f"{folder} does not exist", "make the folder")
        return
    free = shutil.disk_usage(folder).free
    yield from check_file_system(folder)
    yield Finding("free space", free >= _FREE_SPACE, _megabytes(free), "free some space on the disk")


def _size(path: Path) -> Finding:
    return Finding("size", True, _megabytes(path.stat().st_size))


def _log(path: Path) -> Finding:
    log = log_of(path)
    size = log.stat().st_size if log.exists() else 0
    remedy = "look for a program that keeps a transaction open on the file"
    return Finding("write-ahead log", size < _LARGE_LOG, _megabytes(size), remedy)


def _inside(path: Path, prefix: str) -> list[Finding]:
    connection = Connection.open(path, prefix=prefix)
    try:
        return list(_state(connection.sql))
    finally:
        connection.close()


def _state(sql: sqlite3.Connection) -> Iterator[Finding]:
    mode = str(sql.execute("PRAGMA journal_mode").fetchone()[0])
    current = schema.is_current(sql)
    yield Finding("schema", current, str(schema.version(sql)), "create a queue, which applies the schema")
    remedy = "run `PRAGMA journal_mode = WAL` on the file"
    if prefix_of(sql) and mode != "wal":
        value = f"{mode}, the application's: readers and writers wait for each other, and claims for the disk"
        yield Finding("journal mode", True, value, remedy, warning=True)
    else:
        yield Finding("journal mode", mode == "wal" or not current, mode, remedy)
    locking = str(sql.execute("PRAGMA locking_mode").fetchone()[0])
    yield Finding(
        "locking", locking == "normal", locking, "use a SQLite that was built without exclusive locking"
    )
    found = find_damage(sql)
    yield Finding(
        "integrity",
        found is None,
        "ok" if found is None else " ".join(found.split()),
        "put a backup in its place with `shardq restore BACKUP`, or rescue it with `sqlite3 FILE .recover`",
    )
    yield _writable(sql)


def _writable(sql: sqlite3.Connection) -> Finding:
    try:
        sql.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
        sql.execute("BEGIN IMMEDIATE")
        sql.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            remedy = "look for a program that keeps a transaction open on the file"
            return Finding("writable", False, f"{error} for {_PATIENCE_MS / 1000:g} s", remedy)
        return Finding(
            "writable", False, str(error), "give this user write access to the file and its folder"
        )
    return Finding("writable", True, "yes")


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"
