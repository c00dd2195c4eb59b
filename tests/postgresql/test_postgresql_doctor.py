"""What `shardq doctor` is told of a PostgreSQL server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psycopg
import pytest

from shardq.storage.postgresql.guarantees import findings
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Finding

pytestmark = pytest.mark.server

INDEXES = """
    SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = %s AND tablename NOT LIKE 'finished!_%%' ESCAPE '!'
    AND indexname NOT IN (SELECT conname FROM pg_constraint)
"""
CONSTRAINTS = """
    SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = %s::regnamespace AND contype IN ('p', 'u')
"""
LIVE = "SELECT relname, n_live_tup FROM pg_stat_user_tables WHERE schemaname = %s AND n_live_tup >= 1000"


def told(store: PostgresStore) -> dict[str, Finding]:
    return {each.name: each for each in store.diagnose()}


def test_settings_that_weaken_a_promise_are_named_with_a_remedy(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    role = f"weak{os.urandom(4).hex()}"
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
        connection.execute(f"ALTER ROLE {role} SET synchronous_commit = off")
        try:
            store = open_store(schema_url.replace("://shardq@", f"://{role}@"))
            found = told(store)["synchronous_commit"]
            assert not found.ok and "synchronous_commit = on" in found.remedy
            store.close()
        finally:
            connection.execute(f"DROP ROLE {role}")


def test_a_role_behind_a_pooler_that_gets_no_warnings_is_named_with_a_remedy() -> None:
    settings = dict.fromkeys(("fsync", "full_page_writes", "autovacuum", "synchronous_commit"), "on")
    settings |= {"synchronous_standby_names": "other", "client_min_messages": "error"}
    (found,) = (each for each in findings(settings) if each.warning)
    assert found.name == "client_min_messages" and "client_min_messages = warning" in found.remedy


def test_a_store_without_a_schema_says_how_to_make_it(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    found = told(open_store(f"{schema_url}_unused"))["schema"]
    assert not found.ok and "shardq schema apply" in found.remedy


@pytest.mark.parametrize(
    ("rights", "ok", "warning", "words"),
    [
        ("SELECT", False, True, ("DELETE on", "INSERT on", "UPDATE on", "TRUNCATE on finished")),
        ("SELECT, INSERT", True, True, ("DELETE on", "UPDATE on")),
        ("SELECT, INSERT, UPDATE, DELETE, TRUNCATE", True, False, ()),
    ],
)
def test_rights_that_a_user_lacks_are_named(
    open_store: Callable[..., PostgresStore],
    schema_url: str,
    rights: str,
    ok: bool,
    warning: bool,
    words: tuple[str, ...],
) -> None:
    open_store().create_schema()
    role, address = f"few{os.urandom(4).hex()}", parse(schema_url)[0]
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        connection.execute(f"GRANT USAGE ON SCHEMA {address.schema} TO {role}")
        connection.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {address.schema} TO {role}")
        connection.execute(f"CREATE TABLE IF NOT EXISTS {address.schema}.other_application (x int)")
        store = open_store(schema_url.replace("://shardq@", f"://{role}@"))
        try:
            found = told(store)["rights"]
            store.close()
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert (found.ok, found.warning) == (ok, warning)
    assert all(word in found.value for word in words)


def test_indexes_that_are_missing_are_named(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store, address = open_store(), parse(schema_url)[0]
    store.create_schema()
    well = told(store)["indexes"]
    assert (well.ok, well.value) == (True, "all")
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        made = connection.execute(INDEXES, (address.schema,)).fetchall()
        assert len(made) > 5
        for name, statement in made:
            connection.execute(f"DROP INDEX {address.schema}.{name}")
            found = told(store)["indexes"]
            assert (found.ok, found.value.endswith(f": {name}")) == (False, True)
            connection.execute(statement.replace(" ON ONLY ", " ON "))  # with ONLY it would not be valid
    assert told(store)["indexes"].ok


def test_constraints_that_are_missing_are_named_by_their_indexes(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store, address = open_store(), parse(schema_url)[0]
    store.create_schema()
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        made = connection.execute(CONSTRAINTS, (address.schema,)).fetchall()
        assert len(made) > 5
        for table, name, definition in made:
            connection.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
            found = told(store)["indexes"]
            assert (found.ok, found.value.endswith(f": {name}")) == (False, True)
            connection.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
    assert told(store)["indexes"].ok


def test_rows_that_the_schema_has_for_the_planner_are_not_counted(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store, address = open_store(), parse(schema_url)[0]
    store.create_schema()
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        while len(live := connection.execute(LIVE, (address.schema,)).fetchall()) < 3:
            time.sleep(0.1)  # a session reports its statistics after its transaction
    assert dict(live) == {"slice": 5_000, "bundle_data": 1_000, "group_low": 1_000}
    found = told(store)
    assert [found[f"table {name}"].value.split(",")[0] for name, _ in live] == ["0 rows"] * 3


def test_tables_without_statistics_are_named(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store, address = open_store(), parse(schema_url)[0]
    store.create_schema()
    assert not told(store)["statistics"].warning
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(
            "DELETE FROM pg_statistic WHERE starelid = %s::regclass", (f"{address.schema}.slice",)
        )
        found = told(store)["statistics"]
        assert (found.ok, found.warning, found.value.split(":")[0]) == (True, True, "none of slice")
        connection.execute(f"ANALYZE {address.schema}.slice")
    assert not told(store)["statistics"].warning


def test_a_server_that_cannot_be_reached_is_told(open_store: Callable[..., PostgresStore]) -> None:
    (found,) = open_store("postgresql://127.0.0.1:1/db").diagnose()
    assert not found.ok and "cannot be reached" in found.value
