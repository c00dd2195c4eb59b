"""What `shardq doctor` is told of a PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Callable

import psycopg
import pytest

from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Finding

pytestmark = pytest.mark.server


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


def test_a_store_without_a_schema_says_how_to_make_it(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    found = told(open_store(f"{schema_url}_unused"))["schema"]
    assert not found.ok and "shardq schema apply" in found.remedy


def test_a_server_that_cannot_be_reached_is_told(open_store: Callable[..., PostgresStore]) -> None:
    (found,) = open_store("postgresql://127.0.0.1:1/db").diagnose()
    assert not found.ok and "cannot be reached" in found.value
