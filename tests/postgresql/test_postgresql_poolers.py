"""Clients behind PgBouncer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

from shardq.storage import clocks
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from tests.postgresql.pgbouncer import pooler

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


@pytest.fixture
def single(postgresql_url: str) -> Iterator[str]:
    """The URL of a pooler with one connection of the server."""
    with pooler(postgresql_url, default_pool_size=1) as url:
        yield url


def test_a_transaction_does_not_ask_for_the_time_on_another_connection(
    single: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moments(sql: Sql, now: int) -> tuple[int, int]:
        return now, sql.now()

    monkeypatch.setattr(clocks, "_INTERVAL", 0)  # every read of the clock asks the server
    store = PostgresStore(parse(f"{single}?prepare=false&timeout=2")[0])
    before = store.now()
    begun, later = store.session.write(moments)
    store.close()
    assert before <= begun <= later < before + 1_000_000
