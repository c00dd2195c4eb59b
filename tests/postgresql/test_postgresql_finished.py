"""What is finished stays so for those who come late, and its tables are emptied beside everybody's work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from shardq.base.shard import Shard
from shardq.errors import StoreUnavailable
from shardq.storage.postgresql import bundles
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Span
from shardq.testing import BundleFactory
from tests.postgresql.blocked import until_blocked
from tests.steps import MINUTE

pytestmark = pytest.mark.server


def finish(store: PostgresStore, shard: Shard) -> None:
    """Receive everything and ack it."""
    token = os.urandom(16)
    held = store.claim(Claim(shard, token, 100, MINUTE)).slices
    store.acknowledge(
        Acknowledge(shard, tuple(Span(each.bundle.id, each.first, each.count, token) for each in held))
    )


@pytest.fixture
def make(store: PostgresStore) -> Callable[[int], Bundle]:
    factory = BundleFactory(store.now)
    return lambda size: factory(1, data=b"x" * size)


@pytest.mark.parametrize("sizes", [[10], [5000], [10, 5000]], ids=str)
def test_an_append_that_comes_after_its_repetition_was_finished_stores_nothing(
    store: PostgresStore, shard: Shard, make: Callable[[int], Bundle], sizes: list[int]
) -> None:
    late = Append(shard, tuple(map(make, sizes)), fresh=True)
    store.append(late)
    finish(store, shard)
    store.append(late)
    assert store.count(shard).ready == 0


@pytest.mark.parametrize("sizes", [[10], [5000], [10, 5000]], ids=str)
def test_an_append_that_comes_after_a_part_of_its_repetition_was_acked_stores_nothing(
    store: PostgresStore, shard: Shard, sizes: list[int]
) -> None:
    factory, token = BundleFactory(store.now), os.urandom(16)
    late = Append(shard, tuple(factory(2, data=b"x" * size) for size in sizes), fresh=True)
    store.append(late)
    held = store.claim(Claim(shard, token, 100, MINUTE)).slices
    store.acknowledge(Acknowledge(shard, tuple(Span(each.bundle.id, 0, 1, token) for each in held)))
    store.append(late)
    counts = store.count(shard)
    assert (counts.ready, counts.in_flight) == (0, len(sizes))


@pytest.mark.parametrize("sizes", [[10], [10, 5000]], ids=str)
def test_an_append_stores_nothing_of_what_a_transaction_of_the_application_acks(
    store: PostgresStore, shard: Shard, make: Callable[[int], Bundle], schema_url: str, sizes: list[int]
) -> None:
    late = Append(shard, tuple(map(make, sizes)), fresh=True)
    store.append(late)
    with psycopg.connect(parse(schema_url)[0].conninfo) as app, ThreadPoolExecutor() as threads:
        token = os.urandom(16)
        held = store.claim(Claim(shard, token, 100, MINUTE)).slices
        spans = tuple(Span(each.bundle.id, 0, 1, token) for each in held)
        store.within(app).acknowledge(Acknowledge(shard, spans))
        appending = threads.submit(store.append, late)
        with suppress(TimeoutError):
            appending.result(1)
        app.commit()
        appending.result(30)
    assert store.count(shard).ready == 0


@pytest.mark.parametrize("sizes", [[10], [10, 5000]], ids=str)
def test_an_append_sees_what_was_finished_while_it_waited(
    store: PostgresStore, shard: Shard, make: Callable[[int], Bundle], schema_url: str, sizes: list[int]
) -> None:
    store.append(Append(shard, (make(10),)))
    finish(store, shard)
    late = Append(shard, tuple(map(make, sizes)), fresh=True)
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo) as other:
        of_shard = (
            f"FROM {address.schema}.shard s JOIN {address.schema}.queue q USING (queue_key) WHERE q.name = %s"
        )
        other.execute(f"SELECT 1 {of_shard} FOR UPDATE OF s", (shard.queue,))
        waiting = threading.Thread(target=store.append, args=(late,))
        waiting.start()
        until_blocked(other)
        for bundle in late.bundles:
            other.execute(
                f"INSERT INTO {address.schema}.finished (period, queue_key, bundle_id) "
                f"SELECT %s, queue_key, %s::uuid {of_shard}",
                (bundles.period_of(store.now()), bundle.id.hex(), shard.queue),
            )
    waiting.join()
    assert store.count(shard).ready == 0


def test_a_repeated_append_takes_back_what_was_finished_while_it_waited_for_another_message(
    store: PostgresStore, open_store: Callable[..., PostgresStore], shard: Shard, schema_url: str
) -> None:
    factory = BundleFactory(store.now)
    waited, finished = factory(1), factory(1)
    store.append(Append(shard, (factory(1),)))
    finish(store, shard)
    address, _ = parse(schema_url)
    with psycopg.connect(address.conninfo) as other:
        other.execute(
            f"""
            INSERT INTO {address.schema}.slice
                (shard_key, bundle_id, first, count, sent_count, priority, due, sent_due, enqueued_at)
            SELECT shard_key, %s::uuid, 0, 1, 1, 0, 0, 0, 0
            FROM {address.schema}.shard s JOIN {address.schema}.queue q USING (queue_key) WHERE q.name = %s
            """,
            (waited.id.hex(), shard.queue),
        )
        append = Append(shard, (waited, finished))
        waiting = threading.Thread(target=open_store().append, args=(append,))
        waiting.start()
        until_blocked(other)
        store.append(Append(shard, (finished,), fresh=True))
        finish(store, shard)
        other.rollback()
        waiting.join()
    assert store.find(shard, waited.id, 0) is not None
    assert store.find(shard, finished.id, 0) is None


def test_a_table_that_is_used_again_keeps_nobody_from_it(store: PostgresStore, schema_url: str) -> None:
    address, _ = parse(schema_url)
    store.create_schema()
    now = store.now()
    old = bundles.period_of(now) - 7
    table = old % 5
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        for period in (old, old + 5):
            connection.execute(
                f"INSERT INTO {address.schema}.finished (period, queue_key, bundle_id) "
                "VALUES (%s, 0, gen_random_uuid())",
                (period,),
            )
        assert table in store.session.read(bundles.old_tables, now)
        with connection.transaction():
            connection.execute(f"SELECT 1 FROM {address.schema}.finished_{table}")
            assert store.session.write(bundles.empty_table, table) == 0
        connection.execute(f"DELETE FROM {address.schema}.finished WHERE queue_key = 0")


def test_a_table_of_what_finished_long_ago_is_emptied_when_nobody_reads_it(
    store: PostgresStore, schema_url: str
) -> None:
    address, _ = parse(schema_url)
    store.create_schema()
    old = bundles.period_of(store.now()) - 7
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO {address.schema}.finished (period, queue_key, bundle_id) "
            "VALUES (%s, 0, gen_random_uuid())",
            (old,),
        )
        reading = f"SELECT 1 FROM {address.schema}.finished_{old % 5}"
        with connection.transaction():
            connection.execute(reading)
            with suppress(StoreUnavailable):
                assert not store.session.write(bundles.empty_table, old % 5)
        assert store.session.write(bundles.empty_table, old % 5) == 1
        assert not connection.execute(reading).fetchall()
