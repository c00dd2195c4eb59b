"""The schema of the file: which one it has, and how it is applied."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from shardq.errors import SchemaMismatch
from shardq.storage.migrations import Migration, migrations
from shardq.storage.sqlite.tables import prefix_of

__all__ = ["apply", "check_owner", "is_current", "recognise", "version"]

APPLICATION_ID = 0x73687271
_STORE = "sqlite"
_VERSION = "PRAGMA user_version"
_APPLICATION = "PRAGMA application_id"
_DATABASES = "PRAGMA database_list"
_TABLES = "SELECT count(*) FROM sqlite_schema"
_OURS = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, length(?1)) = ?1"
# In the database of an application a row has the version, as `user_version` and `application_id` are the application's.
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS [schema_version] (version INTEGER NOT NULL) STRICT"
_HAS_VERSION = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
_VERSION_ROW = "SELECT max(version) FROM [schema_version]"
_ENTER_VERSION = "INSERT INTO [schema_version] (version) VALUES (?)"
_PAGE_SIZE = "PRAGMA page_size = 8192"
_WAL = "PRAGMA journal_mode = WAL"
_BEGIN = "BEGIN IMMEDIATE"


def version(connection: sqlite3.Connection) -> int:
    """Return the number of the last migration that was applied; 0 for an empty file."""
    if prefix := prefix_of(connection):
        if not connection.execute(_HAS_VERSION, (f"{prefix}schema_version",)).fetchone():
            return 0
        return int(connection.execute(_VERSION_ROW).fetchone()[0] or 0)
    return int(connection.execute(_VERSION).fetchone()[0])


def is_current(connection: sqlite3.Connection) -> bool:
    """Return True when the file has this client's schema, False when it is empty; else SchemaMismatch."""
    found, known = recognise(connection), len(migrations(_STORE))
    if 0 < found < known:
        raise SchemaMismatch(
            f"SQLite file {_file(connection)} has schema version {found}, this shardq needs {known}: "
            "run `shardq schema apply` to apply the rest"
        )
    return found == known


def apply(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations. Raises SchemaMismatch and SQLite's errors.

    All of it is one transaction: who opens the file meanwhile finds it empty, or as it was, and never half made.
    """
    if recognise(connection) == 0 and not prefix_of(connection):
        connection.execute(_PAGE_SIZE)
        connection.execute(_WAL)
    connection.execute(_BEGIN)
    try:
        # Another process may have applied it while this one waited for the lock.
        for migration in migrations(_STORE)[recognise(connection) :]:
            _apply_one(connection, migration)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def recognise(connection: sqlite3.Connection) -> int:
    """Return the file's version, once it is certain that it is a file of shardq that this client knows."""
    tables = check_owner(connection)
    found, known = version(connection), len(migrations(_STORE))
    if tables and not found:
        prefix = prefix_of(connection)
        raise SchemaMismatch(
            f"SQLite file {_file(connection)} has tables whose names begin with {prefix!r}, and no schema version of "
            "shardq: give another prefix, as in ?tables=queues_"
            if prefix
            else f"SQLite file {_file(connection)} has tables of shardq and no schema version, so it is damaged: put a "
            "backup in its place with `shardq restore BACKUP`"
        )
    if found > known:
        raise SchemaMismatch(
            f"SQLite file {_file(connection)} has schema version {found}, this shardq knows up to {known}: "
            "upgrade shardq"
        )
    return found


def check_owner(connection: sqlite3.Connection) -> int:
    """Return the number of its tables. Raises SchemaMismatch for a file that another application has made."""
    if prefix := prefix_of(connection):
        return int(connection.execute(_OURS, (prefix,)).fetchone()[0])
    # The tables first: another process may be making the schema, and commits them with the application's id.
    tables = int(connection.execute(_TABLES).fetchone()[0])
    application = connection.execute(_APPLICATION).fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise SchemaMismatch(
            f"SQLite file {_file(connection)} belongs to another application: use a separate file, or add "
            "?tables=shardq_ to the URL, which keeps the tables of shardq in this file under that prefix"
        )
    return tables


def _file(connection: sqlite3.Connection) -> str:
    return str(connection.execute(_DATABASES).fetchone()[2])


def _apply_one(connection: sqlite3.Connection, migration: Migration) -> None:
    is_shared = bool(prefix_of(connection))
    for statement in _statements(migration.text):
        if not (is_shared and "PRAGMA application_id" in statement):
            connection.execute(statement)
    if is_shared:
        connection.execute(_VERSION_TABLE)
        connection.execute(_ENTER_VERSION, (migration.number,))
        return
    connection.execute(f"PRAGMA user_version = {migration.number:d}")


def _statements(text: str) -> Iterator[str]:
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
