"""A program that turns logging on finds nothing of the driver there, as long as all goes well."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

import shardq
from shardq.storage.cassandra.session import Session
from shardq.storage.cassandra.url import parse
from tests.cassandra_server import keyspace_beside

pytestmark = pytest.mark.server


@pytest.fixture
def new_keyspace(cassandra_url: str) -> Iterator[str]:
    """The URL of a keyspace that is not made yet. It is dropped afterwards."""
    url = keyspace_beside(cassandra_url, f"new{os.urandom(4).hex()}")
    yield url
    address = parse(url)
    with Session(address).unprepared() as driver:
        driver.execute(f'DROP KEYSPACE IF EXISTS "{address.keyspace}"', timeout=60)


def test_a_new_keyspace_is_made_and_used_without_a_warning(
    new_keyspace: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), shardq.connect(new_keyspace) as client:
        assert not client.exists("q")
        queue = client.create_queue("q", shards=1, time_shards=1, rate_limit="1000/s")
        producer, consumer = queue.producer(), queue.consumer()
        producer.send_many([b"x"] * 10)
        producer.send(b"x", dedupe_key="d")
        producer.send(b"x", unique_key="u")
        producer.send(b"x", group="g")
        taken = 0
        while taken < 13:
            batch = consumer.receive(100, wait=30)
            assert batch
            batch.extend(20)
            batch.ack()
            taken += len(batch)
        consumer.close()
        client.delete_queue("q")
    assert [record.getMessage() for record in caplog.records] == []
