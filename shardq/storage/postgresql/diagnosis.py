"""Facts about the server and the schema for people who look after them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from shardq.errors import SchemaMismatch, ShardqError
from shardq.storage.migrations import migrations
from shardq.storage.postgresql import guarantees, schema
from shardq.storage.postgresql.connections import Address, Sql
from shardq.storage.postgresql.session import Session
from shardq.storage.requests import Finding

__all__ = ["diagnose"]

_SERVER = "SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()"
_OLDEST = 150000
_SETTINGS = """
    SELECT name, setting FROM pg_settings WHERE name IN (
        'synchronous_commit', 'synchronous_standby_names', 'client_min_messages', 'fsync', 'full_page_writes',
        'autovacuum'
    )
"""
# Other users' transactions are shown only to a user that may read all statistics.
_OLDEST_SNAPSHOT = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint,
        (array_agg(pid ORDER BY xact_start))[1]
    FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
"""
_DEAD = """
    SELECT relname::text, n_live_tup, n_dead_tup,
        coalesce(extract(epoch FROM clock_timestamp() - greatest(last_autovacuum, last_vacuum)), -1)::bigint
    FROM pg_stat_user_tables
    WHERE schemaname = $1 AND relname IN ('slice', 'bundle_data', 'group_low', 'key', 'watermark')
    ORDER BY n_dead_tup DESC
"""
# Those of tables that this user may read.
_WITHOUT_STATISTICS = """
    SELECT relname::text FROM pg_class
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relname = ANY ($2::text[])
    AND has_table_privilege(oid, 'SELECT')
    AND NOT EXISTS (SELECT FROM pg_stats WHERE schemaname = $1 AND tablename = relname)
    ORDER BY relname
"""
_MISSING_RIGHTS = """
    SELECT wanted, array_agg(relname::text ORDER BY relname)
    FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS wanted
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND relkind IN ('r', 'p')
    AND NOT has_table_privilege(pg_class.oid, wanted) AND (wanted <> 'TRUNCATE' OR relname LIKE 'finished%')
    GROUP BY wanted ORDER BY wanted
"""
_VALID_INDEXES = """
    SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND indisvalid
"""
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+)")
_TABLE = re.compile(r"CREATE TABLE {schema}\.(\w+)")
_COLUMNS = re.compile(r"CREATE TABLE {schema}\.(\w+) \((.*?)\n\)", re.DOTALL)
_UNIQUE = re.compile(r"^ +(?:(\w+) .*UNIQUE\b|UNIQUE \((.+)\))", re.MULTILINE)
_CHANGES = {"INSERT", "UPDATE", "DELETE"}
_LONG = 15 * 60  # seconds of a transaction that keeps dead rows from being removed
_MOST_DEAD = 1_000_000
_NAMED = 3  # tables
_OF_NO_SHARD = {"slice": 5_000, "bundle_data": 1_000, "group_low": 1_000}  # rows for the planner


def diagnose(session: Session, address: Address) -> tuple[Finding, ...]:
    """Inspect the server, its settings and the tables; changes nothing."""
    try:
        return tuple(session.read(lambda sql: list(_findings(sql, address))))
    except ShardqError as error:
        return (Finding("server", False, str(error)),)


def _findings(sql: Sql, address: Address) -> Iterator[Finding]:
    ((release, number, is_standby),) = sql.all(_SERVER)
    yield Finding("server", number >= _OLDEST, f"PostgreSQL {release}", "use PostgreSQL 15 or newer")
    yield Finding(
        "role",
        ok=not is_standby,
        value="a standby, which takes no writes" if is_standby else "the primary",
        remedy="name all servers in the URL, with target_session_attrs=read-write",
    )
    settings = {name: str(value) for name, value in sql.all(_SETTINGS)}
    yield from guarantees.findings(settings)
    found = _schema(sql, address)
    yield found
    if found.ok:
        yield _rights(sql, address)
        yield _indexes(sql, address)
        yield _statistics(sql, address)
    yield _snapshot(sql)
    yield from _tables(sql, address)


def _schema(sql: Sql, address: Address) -> Finding:
    found = schema.version(sql)
    try:
        schema.check_version(found, address)
    except SchemaMismatch as error:
        return Finding("schema", ok=False, value=str(error), remedy="run `shardq schema apply`")
    return Finding("schema", ok=True, value=f"version {found}")


def _rights(sql: Sql, address: Address) -> Finding:
    """Report the rights on tables that this user lacks. A program that only sends or only receives may lack some."""
    ours = _made(_TABLE)
    lacking = {
        right: [each for each in tables if each in ours]
        for right, tables in sql.all(_MISSING_RIGHTS, address.schema)
    }
    missing = {right: tables for right, tables in lacking.items() if tables}
    if not missing:
        return Finding("rights", ok=True, value="all that are needed")
    return Finding(
        "rights",
        ok=any("slice" not in missing.get(right, ()) for right in _CHANGES),
        value=f"without {', '.join(f'{right} on {_named(tables)}' for right, tables in missing.items())}",
        remedy="give this user SELECT, INSERT, UPDATE and DELETE on the tables of the schema, and TRUNCATE on those "
        "whose names begin with finished",
        warning=True,
    )


def _indexes(sql: Sql, address: Address) -> Finding:
    there = {name for (name,) in sql.all(_VALID_INDEXES, address.schema)}
    missing = [name for name in [*_made(_INDEX), *_made_by_constraints()] if name not in there]
    return Finding(
        "indexes",
        ok=not missing,
        value=f"missing or not valid: {', '.join(missing)}" if missing else "all",
        remedy="drop those that are not valid; `shardq schema print --store postgresql` shows how they are made",
    )


def _statistics(sql: Sql, address: Address) -> Finding:
    """Report the tables that the planner knows nothing of: a dump has no statistics, and autovacuum makes none here."""
    missing = [name for (name,) in sql.all(_WITHOUT_STATISTICS, address.schema, list(_OF_NO_SHARD))]
    return Finding(
        "statistics",
        ok=True,
        value=f"none of {', '.join(missing)}: claims may read whole shards" if missing else "of all tables",
        remedy="run ANALYZE, as is needed after a restore",
        warning=bool(missing),
    )


def _made(kind: re.Pattern[str]) -> list[str]:
    """Return the names of the tables or indexes that the schema has; a migration may make one of them anew."""
    return list(dict.fromkeys(name for each in migrations("postgresql") for name in kind.findall(each.text)))


def _made_by_constraints() -> Iterator[str]:
    """Yield the names that the server gives the indexes of primary keys and unique constraints."""
    for migration in migrations("postgresql"):
        for table, columns in _COLUMNS.findall(migration.text):
            if "PRIMARY KEY" in columns:
                yield f"{table}_pkey"
            for one, several in _UNIQUE.findall(columns):
                yield "_".join([table, *(one or several).split(", "), "key"])


def _named(tables: list[str]) -> str:
    more = f" and {len(tables) - _NAMED} more" if len(tables) > _NAMED else ""
    return f"{' '.join(tables[:_NAMED])}{more}"


def _snapshot(sql: Sql) -> Finding:
    ((seconds, pid),) = sql.all(_OLDEST_SNAPSHOT)
    if seconds < _LONG:
        return Finding("oldest transaction", ok=True, value=f"{seconds} s")
    return Finding(
        "oldest transaction",
        ok=True,
        value=f"{seconds} s, of process {pid}: nothing that was consumed since then is removed",
        remedy="end it, or set idle_in_transaction_session_timeout",
        warning=True,
    )


def _tables(sql: Sql, address: Address) -> Iterator[Finding]:
    for table, live, dead, since in sql.all(_DEAD, address.schema):
        vacuumed = "never vacuumed" if since < 0 else f"vacuumed {since} s ago"
        yield Finding(
            f"table {table}",
            ok=True,
            value=f"{max(live - _OF_NO_SHARD.get(table, 0), 0)} rows, {dead} dead, {vacuumed}",
            remedy="look for long transactions, replication slots and too few workers of autovacuum",
            warning=dead > max(_MOST_DEAD, live),
        )
