"""What becomes of requests that a PostgreSQL server does not answer, cancels or cuts off."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Append
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server


def sleep(sql: Sql, *_: object) -> None:
    sql.one("SELECT pg_sleep(20)")


def backends(url: str) -> list[int]:
    """Return the processes that serve shardq, other than those of other tests."""
    address, _ = parse(url)
    with psycopg.connect(address.conninfo) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'faulty' AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in found]


def test_a_server_that_does_not_answer_is_given_up(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    store = open_store(f"{schema_url}&timeout=0.5")
    store.create_schema()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="has not answered") as unread:
        store.session.read(sleep)
    assert unread.value.retryable
    with pytest.raises(OutcomeUnknown, match="has not answered"):
        store.session.statement(sleep)
    assert time.monotonic() - began < 15
    store.ping()


def test_a_request_that_is_cancelled_may_be_repeated(
    open_store: Callable[..., PostgresStore], schema_url: str
) -> None:
    def cancelled(sql: Sql, *_: object) -> None:
        sql.script("SET LOCAL statement_timeout = 100")
        sleep(sql)

    store = open_store(schema_url)
    with pytest.raises(StoreUnavailable, match="statement_timeout") as raised:
        store.session.write(cancelled)
    assert raised.value.retryable
    store.ping()


def test_connections_that_were_cut_off_are_replaced_after_one_failure(
    open_store: Callable[..., PostgresStore], store: PostgresStore, shard: Shard, schema_url: str
) -> None:
    cut = open_store(f"{schema_url}&application_name=faulty")
    make = BundleFactory(store.now)
    cut.append(Append(shard, (make(1),)))
    with psycopg.connect(parse(schema_url)[0].conninfo, autocommit=True) as connection:
        for pid in backends(f"{schema_url}&application_name=looks"):
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    bundle = make(1)
    with pytest.raises((StoreUnavailable, OutcomeUnknown)) as failed:
        cut.append(Append(shard, (bundle,)))
    assert failed.value.retryable
    cut.append(Append(shard, (bundle,)))
    assert store.count(shard).ready == 2
