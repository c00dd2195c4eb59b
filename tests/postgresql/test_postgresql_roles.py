"""Roles with the rights that the guide names do their work, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import psycopg
import pytest

import shardq
from shardq.base.shard import Shard
from shardq.storage.postgresql.connections import Sql
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.postgresql.url import parse
from shardq.storage.requests import Append
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

SENDER = """
    GRANT USAGE ON SCHEMA {s} TO {r};
    GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {r};
    GRANT INSERT ON {s}.slice, {s}.bundle_data, {s}.shard TO {r};
    GRANT UPDATE (number) ON {s}.shard TO {r};
    GRANT UPDATE (version) ON {s}.queue TO {r};
    GRANT INSERT, DELETE ON {s}.watermark TO {r};
"""
RECEIVER = """
    GRANT USAGE ON SCHEMA {s} TO {r};
    GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO {r};
    GRANT INSERT, UPDATE, DELETE ON {s}.slice TO {r};
    GRANT INSERT, UPDATE (number), DELETE ON {s}.shard TO {r};
    GRANT UPDATE (version) ON {s}.queue TO {r};
    GRANT DELETE ON {s}.bundle_data, {s}.key TO {r};
    GRANT INSERT ON {s}.bundle_data TO {r};
    GRANT UPDATE (place), DELETE ON {s}.group_low TO {r};
    GRANT INSERT, UPDATE (step), DELETE ON {s}.watermark TO {r};
    GRANT INSERT, TRUNCATE, UPDATE ON {s}.finished, {s}.finished_0, {s}.finished_1, {s}.finished_2, {s}.finished_3,
        {s}.finished_4 TO {r};
    GRANT INSERT, UPDATE, DELETE ON {s}.consumer TO {r};
"""


@pytest.fixture
def role(schema_url: str) -> Iterator[Callable[[str], str]]:
    """Makes a role with these rights, and returns the URL for it."""
    address, _ = parse(schema_url)
    roles: list[str] = []
    with psycopg.connect(address.conninfo, autocommit=True) as connection:

        def make(rights: str) -> str:
            roles.append(f"r{os.urandom(5).hex()}")
            connection.execute(f"CREATE ROLE {roles[-1]} LOGIN")
            connection.execute(rights.format(s=address.schema, r=roles[-1]))
            return schema_url.replace("://shardq@", f"://{roles[-1]}@")

        yield make
        for each in roles:
            connection.execute(f"DROP OWNED BY {each}; DROP ROLE {each}")


def test_a_role_that_sends_and_one_that_receives_do_no_more(
    schema_url: str, role: Callable[[str], str]
) -> None:
    with shardq.connect(schema_url, retry_seconds=1) as owner:
        queue = owner.create_queue(f"r{os.urandom(5).hex()}")
        with (
            shardq.connect(role(SENDER), retry_seconds=1) as sender,
            shardq.connect(role(RECEIVER), retry_seconds=1) as receiver,
        ):
            producer = sender.queue(queue.name).producer()
            sent = {producer.send(b"short"), producer.send(b"long" * 1000)}
            got = receiver.queue(queue.name).consumer()
            taken = [message for _ in range(2) for message in got.receive(1, wait=10)]
            assert {message.id for message in taken} == sent
            taken[0].ack()
            taken[1].release()
            got.close()
            with pytest.raises(shardq.StoreUnavailable, match="give this user its rights"):
                sender.queue(queue.name).purge()
            with pytest.raises(shardq.StoreUnavailable, match="give this user its rights"):
                receiver.delete_queue(queue.name)
        assert queue.counts().ready == 1
        owner.delete_queue(queue.name)


def test_a_role_that_receives_makes_dead_letters(schema_url: str, role: Callable[[str], str]) -> None:
    with shardq.connect(schema_url, retry_seconds=1) as owner:
        queue = owner.create_queue(f"r{os.urandom(5).hex()}", max_deliveries=1)
        queue.producer().send_many([b"short", b"long" * 1000])
        queue.producer().send(b"grouped", group="g")
        with shardq.connect(role(RECEIVER), retry_seconds=1) as receiver:
            with receiver.queue(queue.name).consumer() as consumer:
                for batch in consumer.batches(10, wait=1):
                    batch.release(reason="broken")
            dead = receiver.queue(f"{queue.name}.dead")
            assert sorted(message.body for message in dead.peek(10)) == [b"grouped", b"long" * 1000, b"short"]
        for name in (queue.name, f"{queue.name}.dead"):
            owner.delete_queue(name)


def test_a_role_without_a_connection_left_is_told_the_remedies_and_works_when_it_has_some(
    schema_url: str, role: Callable[[str], str]
) -> None:
    with shardq.connect(schema_url) as owner:
        queue = owner.create_queue(f"r{os.urandom(5).hex()}")
        url = role(SENDER + "ALTER ROLE {r} CONNECTION LIMIT 0")
        with shardq.connect(url, retry_seconds=0.2) as sender:
            with pytest.raises(
                shardq.StoreUnavailable, match="raise max_connections there, or the CONNECTION LIMIT"
            ):
                sender.queue(queue.name)
            with psycopg.connect(parse(schema_url)[0].conninfo, autocommit=True) as connection:
                connection.execute(f"ALTER ROLE {url.split('://')[1].split('@')[0]} CONNECTION LIMIT 2")
            sender.queue(queue.name).producer().send(b"x")
        assert queue.counts().ready == 1
        owner.delete_queue(queue.name)


def test_a_late_send_that_claims_could_not_find_is_not_in_the_transaction_of_the_application(
    open_store: Callable[..., PostgresStore],
    store: PostgresStore,
    shard: Shard,
    schema_url: str,
    role: Callable[[str], str],
) -> None:
    make = BundleFactory(store.now)
    restricted = open_store(
        role(SENDER.replace("INSERT, DELETE ON {s}.watermark", "INSERT ON {s}.watermark"))
    )
    with psycopg.connect(parse(schema_url)[0].conninfo) as app:
        joined = restricted.within(app)
        joined.append(Append(shard, (make(1, delay=300),), fresh=True))
        with pytest.raises(shardq.StoreUnavailable, match="give this user its rights"):
            joined.append(Append(shard, (make(1, delay=-300),), fresh=True))
        app.commit()
    assert (store.count(shard).delayed, store.count(shard).ready) == (1, 0)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_role_whose_transactions_are_isolated_sees_what_others_commit(
    open_store: Callable[..., PostgresStore],
    store: PostgresStore,
    schema_url: str,
    role: Callable[[str], str],
    level: str,
) -> None:
    def isolation(sql: Sql, _: int) -> object:
        return sql.one("SELECT current_setting('transaction_isolation')")

    store.create_schema()
    isolated = open_store(role(f"ALTER ROLE {{r}} SET default_transaction_isolation = '{level}'"))
    assert isolated.session.statement(isolation) == ("read committed",)
    assert isolated.session.write(isolation) == ("read committed",)
