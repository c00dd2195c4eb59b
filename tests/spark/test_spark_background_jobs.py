"""A stream looks after its queue as any consumer does: it relays for subscriptions and sends for schedules."""

from __future__ import annotations

import io
import threading
import time
from typing import Any

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.core.large import collecting
from shardq.core.large.layout import BODIES
from shardq.core.receiving import upkeep
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.connection import context_of
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from shardq.spark.source import ShardqDataSource
from shardq.storage.requests import Sweep


def bodies_in(reader: ClaimStream) -> list[bytes]:
    """What comes first."""
    start = reader.initialOffset()
    deadline = time.monotonic() + 60
    while (end := reader.latestOffset(start, ReadMaxRows(10))) == start:
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.02)
    found = [
        bytes(body)
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for body in batch.column("body").to_pylist()
    ]
    reader.latestOffset(end, ReadMaxRows(10))
    reader.stop()
    return found


def test_a_stream_relays_what_is_published_to_its_subscription(client, url) -> None:
    topic = client.create_topic("orders")
    topic.subscribe("audit")
    source = ShardqDataSource({"url": url, "topic": "orders", "subscription": "audit"})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ClaimStream)
    publisher = shardq.connect(url)
    publisher.topic("orders").publish(b"x")
    publisher.close()
    assert bodies_in(reader) == [b"x"]
    client.delete_topic("orders")


def test_a_stream_sends_what_is_scheduled(client, queue, url) -> None:
    client.schedules.create("tick", queue=queue.name, every=1.0, body=b"tick")
    options = ClaimStreamOptions(url=url, queue=queue.name)
    assert set(bodies_in(ClaimStream(options, schema_of(options)))) == {b"tick"}


def test_a_stream_removes_what_is_left_over(make_queue, url, monkeypatch) -> None:
    queue = make_queue(shards=1, time_shards=1, history_retention=0.2)
    options = ClaimStreamOptions(url=url, queue=queue.name)
    reader = ClaimStream(options, schema_of(options))
    queue.producer().send(b"x")
    assert bodies_in(reader) == [b"x"]
    assert queue.counts().processed == 1
    time.sleep(0.3)
    monkeypatch.setattr(upkeep, "INTERVAL", 0)
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert queue.counts().processed == 0


def test_a_stream_removes_large_bodies_whose_messages_are_acked(queue, url, monkeypatch) -> None:
    monkeypatch.setattr(collecting, "GRACE", 0)
    monkeypatch.setattr(upkeep, "LONG_INTERVAL", 1)
    with shardq.connect(url) as client:
        client.queue(queue.name).producer().send_stream(io.BytesIO(b"x" * 3_000_000))
        options = ClaimStreamOptions(url=url, queue=queue.name)
        reader = ClaimStream(options, schema_of(options))
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        rows = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
        assert [batch.column("body").to_pylist() for batch in rows] == [[None]]
        assert client.queue(BODIES).counts().ready
        monkeypatch.setattr(upkeep, "INTERVAL", 0)
        for _ in range(2):  # the batch is acked at the first one, and swept behind it
            reader.latestOffset(end, ReadMaxRows(10))
        assert not client.queue(BODIES).counts().ready
        reader.stop()


def test_a_trigger_does_not_wait_for_a_sweep_where_the_store_takes_several_requests_at_once(
    queue, url, monkeypatch
) -> None:
    options = ClaimStreamOptions(url=url, queue=queue.name)
    store: Any = context_of(options).store
    inner, begun, let_go = store.sweep, threading.Semaphore(0), threading.Event()

    def sweep(request: Sweep) -> int:
        begun.release()
        assert let_go.wait(60)
        return int(inner(request))

    monkeypatch.setattr(store, "sweep", sweep)
    several = msgspec.structs.replace(store.capabilities, requests_at_once=8)
    monkeypatch.setattr(type(store), "capabilities", several)
    reader = ClaimStream(options, schema_of(options))
    try:
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
        assert begun.acquire(timeout=60)
        monkeypatch.setattr(upkeep, "INTERVAL", 0)
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
        assert not begun.acquire(blocking=False)  # one sweep at a time
    finally:
        let_go.set()
        reader.stop()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscription": "audit"}, "option 'topic' is missing"),
        ({"subscription": "audit", "topic": "orders", "queue": "q"}, "both given"),
        ({"subscription": "audit", "topic": "none"}, "topic 'none' does not exist"),
        ({"topic": "orders"}, "did you mean 'queue'"),
    ],
)
def test_a_subscription_is_named_with_its_topic(
    client: shardq.Client, url, given: dict[str, Any], text
) -> None:
    client.create_queue("q")
    with pytest.raises(shardq.ShardqError, match=text):
        ShardqDataSource({"url": url} | given).schema()
