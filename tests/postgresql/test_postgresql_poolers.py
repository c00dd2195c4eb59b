"""Clients behind PgBouncer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

psycopg = pytest.importorskip("psycopg", reason="the extra `postgresql` is not installed")

import shardq  # noqa: E402
from shardq.storage import clocks  # noqa: E402
from shardq.storage.postgresql.connections import Sql  # noqa: E402
from shardq.storage.postgresql.store import PostgresStore  # noqa: E402
from shardq.storage.postgresql.url import parse  # noqa: E402
from tests.postgresql.pgbouncer import pooler  # noqa: E402

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


def test_a_pooler_that_refuses_a_client_is_named_with_a_remedy(postgresql_url: str) -> None:
    with pooler(postgresql_url, max_client_conn=1) as url, psycopg.connect(parse(url)[0].conninfo):
        full = PostgresStore(parse(f"{url}?prepare=false")[0])
        with pytest.raises(shardq.StoreUnavailable, match=r"raise .* max_client_conn of a pooler") as raised:
            full.ping()
        assert raised.value.retryable
        full.close()
    with pooler(postgresql_url) as url:
        unknown = PostgresStore(parse(f"{url.replace('shardq@', 'nobody@')}?prepare=false")[0])
        with pytest.raises(shardq.StoreUnavailable, match="check user, password") as raised:
            unknown.ping()
        assert not raised.value.retryable
        unknown.close()


def test_requests_in_a_transaction_of_the_application_leave_no_prepared_statements(
    postgresql_url: str,
) -> None:
    schema = f"s{os.urandom(5).hex()}"
    with shardq.connect(f"{postgresql_url}?schema={schema}&prepare=false") as client:
        queue = client.create_queue("q")
        with psycopg.connect(postgresql_url) as app:  # which prepares what is repeated
            with client.transaction(connection=app) as within:
                producer = within.queue("q").producer()
                for _ in range(10):
                    producer.send(b"x")
            left = app.execute("SELECT statement FROM pg_prepared_statements").fetchall()
        assert queue.counts().ready == 10
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {schema} CASCADE")
    assert left == []
