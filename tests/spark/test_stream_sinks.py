"""Streams into a queue, and streams that look without receiving."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.datasource import ReadAllAvailable

from shardq.spark.browsing import BrowseStream
from shardq.spark.options import BrowseStreamOptions
from shardq.spark.rows import schema_of


def forget_the_last_commit(checkpoint: Path) -> None:
    """What a crash between the end of a batch and its commit leaves behind."""
    last = max(checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_a_batch_that_is_written_again_after_a_restart_is_not_sent_twice(pipes, queue, numbers_in) -> None:
    landing = pipes.folder / "landing"
    pipes.bodies(4_000).write.parquet(str(landing))

    def stream():
        rows = pipes.spark.readStream.schema("body string").parquet(str(landing)).repartition(2)
        return rows.writeStream.format("shardq").options(**pipes.options(queue))

    pipes.run(stream())
    forget_the_last_commit(pipes.folder / "checkpoint")
    pipes.run(stream())
    assert numbers_in(queue) == list(range(4_000))


def test_messages_stream_from_queue_to_queue(pipes, make_queue, numbers_in) -> None:
    source, target = make_queue(), make_queue()
    with source.producer() as producer:
        producer.send_many([b"%d" % number for number in range(1_000)], priority=2)
    rows = pipes.stream(source, includeHeaders="packed")
    pipes.run(rows.writeStream.format("shardq").options(**pipes.options(target)))
    assert numbers_in(target) == list(range(1_000))
    assert {message.priority for message in target.peek(1_000)} == {2}
    assert (source.counts().ready, source.counts().in_flight) == (0, 0)


def test_the_history_streams_in_periods_each_message_once(pipes, make_queue) -> None:
    queue = make_queue(history_retention=3_600.0)
    out = str(pipes.folder / "out")

    def step(count: int) -> None:
        with queue.producer() as producer, queue.consumer() as consumer:
            producer.send_many([b"x"] * count)
            consumer.receive(count, wait=1.0).ack()
        time.sleep(0.1)
        stream = pipes.stream(queue, mode="browse", lagSeconds=0, since="2020-01-01T00:00:00Z")
        pipes.run(stream.writeStream.format("parquet").option("path", out))

    step(10)
    step(7)
    rows = pipes.spark.read.parquet(out)
    assert rows.count() == rows.select("id").distinct().count() == 17


def test_what_comes_in_streams_without_being_received(pipes, queue) -> None:
    pipes.write(pipes.bodies(500), queue)
    time.sleep(0.1)
    out = str(pipes.folder / "out")
    stream = pipes.stream(queue, mode="browse", view="messages", lagSeconds=0, since="2020-01-01T00:00:00Z")
    pipes.run(stream.writeStream.format("parquet").option("path", out))
    assert pipes.spark.read.parquet(out).count() == 500
    assert queue.counts().ready == 500


@pytest.fixture
def looking(url) -> Callable[[str], Callable[[], list[str]]]:
    """Begins to look at what comes into a queue; then gives the bodies of each period, sorted."""

    def begin(name: str) -> Callable[[], list[str]]:
        options = BrowseStreamOptions(url=url, queue=name, view="messages", lag_seconds=0)
        reader = BrowseStream(options, schema_of(options))
        offsets = [reader.initialOffset()]

        def look() -> list[str]:
            time.sleep(0.01)
            offsets.append(reader.latestOffset(offsets[-1], ReadAllAvailable()))
            batches = (batch for part in reader.partitions(*offsets[-2:]) for batch in reader.read(part))
            return sorted(body.decode() for batch in batches for body in batch.column("body").to_pylist())

        return look

    return begin


def test_what_comes_in_is_seen_whatever_it_waits_for(queue, looking) -> None:
    look = looking(queue.name)
    producer = queue.producer()
    producer.send(b"held")
    assert queue.consumer().receive(1)
    producer.send(b"later", delay=60)
    producer.send(b"ready")
    for body in (b"first of a group", b"second of a group"):
        producer.send(body, group="a")
    assert look() == ["first of a group", "held", "later", "ready", "second of a group"]
    assert look() == []


def test_what_is_moved_into_a_queue_is_seen_as_it_comes(queue, looking) -> None:
    queue.producer().send(b"x")
    look, look_at_letters = looking(queue.name), looking(f"{queue.name}.dead")
    assert (look(), look_at_letters()) == ([], [])
    queue.consumer().receive(1).dead_letter("broken")
    assert (look(), look_at_letters()) == ([], ["x"])
    queue.redrive()
    assert (look(), look_at_letters()) == (["x"], [])


def fail_in_the_last_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    if TaskContext.get().partitionId() == 1:
        raise RuntimeError("this task was meant to fail")


def test_a_stream_from_queue_to_queue_goes_on_though_its_batch_lost_messages_after_a_part_was_sent(
    pipes, make_queue, numbers_in
) -> None:
    source, target = make_queue(shards=2, time_shards=1), make_queue()
    with source.producer(bundle_messages=50) as producer:
        producer.send_many([b"%d" % number for number in range(400)])

    def run(change=None) -> None:
        rows = pipes.stream(source, includeHeaders="packed", leaseSeconds=1, minPartitions=2)
        rows = rows if change is None else rows.mapInArrow(change, rows.schema)
        pipes.run(rows.writeStream.format("shardq").options(**pipes.options(target)))

    with pytest.raises(Exception, match="meant to fail"):
        run(fail_in_the_last_task)
    assert target.counts().ready > 0
    with source.consumer() as consumer:  # its leases end, and others take some of its messages
        taken = consumer.receive(15, wait=10.0)
        taken.ack()
    lost = [int(message.body) for message in taken]
    run()
    sent = numbers_in(target)
    assert len(lost) > 0
    assert sorted({*sent, *lost}) == list(range(400))
    assert (source.counts().ready, source.counts().in_flight) == (0, 0)
