"""The tables of the schema: which version they have, and how they are made."""

from __future__ import annotations

import psycopg

from shardq.errors import SchemaMismatch, UnsupportedByStore
from shardq.storage.migrations import migrations
from shardq.storage.postgresql.connections import Address, Sql, quoted
from shardq.storage.postgresql.faults import is_without_schema

__all__ = ["apply", "check_version", "version"]

_STORE = "postgresql"
_OLDEST = 150000
_VERSION = "SELECT version FROM @meta"
_SERVER = "SELECT current_setting('server_version_num')::int"
_EXISTS = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"
# Each statement sees what others have applied by then, and none is ended by a timeout that the role has for short ones.
# Tables and indexes keep the operators that are found now, also behind a pooler, where the role's path counts.
_BEGIN = """
    BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL search_path = pg_catalog
"""
# Of all who make this schema one after the other.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 7526476))"
_SET = """
    INSERT INTO @meta (version) VALUES ($1::int) ON CONFLICT (one) DO UPDATE SET version = excluded.version
"""


def version(sql: Sql) -> int:
    """Return the number of the last migration that was applied; 0 when none was."""
    try:
        row = sql.one(_VERSION)
    except psycopg.Error as error:
        if is_without_schema(error):
            return 0
        raise
    return int(row[0]) if row else 0


def check_version(found: int, address: Address) -> None:
    """Raise SchemaMismatch unless that is the version of this client's schema; 0: none was applied."""
    known = len(migrations(_STORE))
    if found > known:
        raise SchemaMismatch(
            f"{address} has schema version {found}, this shardq knows up to {known}: upgrade shardq"
        )
    if not found:
        raise SchemaMismatch(
            f"{address} has no schema of shardq yet: create a queue, or run `shardq schema apply`",
            missing=True,
        )
    if found < known:
        raise SchemaMismatch(
            f"{address} has schema version {found}, this shardq needs {known}: "
            "run `shardq schema apply` to apply the rest"
        )


def apply(sql: Sql, address: Address) -> None:
    """Apply what is missing, in one transaction, which the caller rolls back if this raises.

    Raises SchemaMismatch, UnsupportedByStore and the driver's errors.
    """
    done, known = version(sql), len(migrations(_STORE))
    if done == known:
        return
    if done > known:
        check_version(done, address)
    ((server,),) = sql.all(_SERVER)
    if server < _OLDEST:
        raise UnsupportedByStore(f"{address} is PostgreSQL {server // 10000}: use 15 or newer")
    sql.script(_BEGIN)
    sql.one(_LOCK, address.schema)
    ((exists,),) = sql.all(_EXISTS, address.schema)
    if not exists:  # who may not make one may use it
        sql.script(f"CREATE SCHEMA {quoted(address.schema)}")
    sql.script("SAVEPOINT unread")
    done = version(sql)  # another client may have applied it while this one waited
    sql.script("ROLLBACK TO unread")
    for migration in migrations(_STORE)[done:]:
        sql.script(migration.text.replace("{schema}.", "@"))
    if done < known:
        sql.run(_SET, known)
    sql.script("COMMIT")
