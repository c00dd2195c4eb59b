"""Search paths and other settings of a role or an application change nothing that shardq does, and stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import shardq
from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.storage.keys import KeyChange
from shardq.storage.postgresql.store import PostgresStore
from shardq.storage.requests import DedupeEntry, QueueRecord
from tests.steps import EXPECTED, MINUTE, STEPS, clear, counted, prepared

pytestmark = pytest.mark.server

FOREIGN = (Path(__file__).parent / "foreign_objects.sql").read_text()
PATHS = ["search_path={0},pg_catalog", "search_path={0}"]  # in the second one what is built in goes first
SETTINGS = [
    "client_encoding=SQL_ASCII",
    "client_encoding=LATIN1",
    "DateStyle=German",
    "TimeZone=Asia/Kolkata",
    "standard_conforming_strings=off",
    "bytea_output=escape",
    "array_nulls=off",
    "plan_cache_mode=force_custom_plan",
    "row_security=off",
    "synchronous_commit=off",
    "statement_timeout=20000",
    "lock_timeout=20000",
    "idle_in_transaction_session_timeout=20000",
]


@pytest.fixture(scope="session")
def foreign(postgresql_url: str) -> Iterator[str]:
    name = f"foreign{os.urandom(4).hex()}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(FOREIGN.replace("{0}", name))
        yield name
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def options(setting: str) -> str:
    return f"options={quote(f'-c {setting}')}"


def settings(connection: psycopg.Connection[Any]) -> dict[str, object]:
    """Return all settings of a session, without a function."""
    return {row[0]: row[1] for row in connection.execute("SHOW ALL")}


@pytest.mark.parametrize("setting", [*PATHS, "client_encoding=SQL_ASCII", "client_encoding=LATIN1"])
def test_a_store_does_its_work_whatever_the_role_has_set(
    open_store: Callable[..., PostgresStore], schema_url: str, foreign: str, setting: str
) -> None:
    store, queue = open_store(f"{schema_url}&{options(setting.format(foreign))}"), f"c{os.urandom(6).hex()}"
    assert store.create_queue(QueueRecord(queue, b"", 1))
    assert queue in store.list_queues("c")
    for shard in (Shard(queue, 0, 0), Shard(queue, GROUP_TIME_SHARD, 0)):
        for step, do in STEPS.items():
            do(store, shard, prepared(step, store, shard))
            assert counted(store, shard) == EXPECTED[step], step
            clear(store, shard)
    assert store.register_consumer([queue], "\u961f", MINUTE)[0] is not None
    assert [each.consumer for each in store.seen_consumers(queue)] == ["\u961f"]
    assert store.reserve_keys(queue, [DedupeEntry("k", "m")], MINUTE)
    assert store.compare_and_set_keys(queue, [KeyChange("k", None, "v")]) == ("v",)
    assert {each.name: each.ok for each in store.diagnose()}.items() >= {("schema", True), ("indexes", True)}
    with closing(store.channel.listen()) as heard:
        assert next(heard) == (), "it listens"
    assert store.drop_queue(queue)


def test_behind_a_pooler_operators_of_the_path_of_the_role_are_not_built_into_the_schema(
    open_store: Callable[..., PostgresStore], pooled: str, schema_url: str, postgresql_url: str, foreign: str
) -> None:
    own = f"s{os.urandom(5).hex()}"
    url = pooled.replace(schema_url.partition("schema=")[2], own)
    store = open_store(f"{url}&{options(f'search_path={foreign}')}")
    try:
        store.create_schema()
        queue = f"c{os.urandom(6).hex()}"
        assert store.create_queue(QueueRecord(queue, b"", 1))
        for shard in (Shard(queue, 0, 0), Shard(queue, GROUP_TIME_SHARD, 0)):
            for step, do in STEPS.items():
                do(store, shard, prepared(step, store, shard))
                assert counted(store, shard) == EXPECTED[step], step
                clear(store, shard)
    finally:
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {own} CASCADE")


@pytest.mark.parametrize("setting", [*PATHS, *SETTINGS])
def test_a_transaction_of_the_application_keeps_its_settings(
    postgresql_url: str, schema_url: str, foreign: str, setting: str
) -> None:
    with (
        shardq.connect(schema_url) as client,
        psycopg.connect(postgresql_url, options=f"-c {setting.format(foreign)}") as app,
    ):
        queue = client.create_queue(f"q{os.urandom(5).hex()}", shards=1, time_shards=1)
        queue.producer().send(b"held")
        (message,) = queue.consumer().receive(1, wait=10)
        before = settings(app)
        with client.transaction(connection=app) as within:
            producer = within.queue(queue.name).producer()
            for body in (b"x", b"long" * 1000):
                producer.send(body)
            producer.send(b"x", dedupe_key="\u952e")
            producer.send(b"x", unique_key="\u952e")
            producer.send(b"x", group="\u7fa4")
            within.queue(queue.name).ack([message.receipt])
            with pytest.raises(shardq.QueueNotFound):
                within.queue("none").producer().send(b"x")
            assert settings(app) == before
        app.commit()
        assert settings(app) == before
        counts = queue.counts()
        assert (counts.ready, counts.in_flight) == (5, 0)
        client.delete_queue(queue.name)
