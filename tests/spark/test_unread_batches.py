"""A query with ``availableNow`` ends though nothing reads its batches, and leaves their messages in the queue."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import shardq
from shardq.spark.claim_stream import ClaimStream
from shardq.spark.options import ClaimStreamOptions
from shardq.spark.rows import schema_of
from tests.spark.every_store import on_every_store

Offset = dict[str, Any]


@pytest.fixture
def stream(url, queue):
    """Open the reader of a query with ``availableNow``, as the driver of Spark has it."""
    opened: list[ClaimStream] = []

    def start(**options: Any) -> ClaimStream:
        chosen = ClaimStreamOptions(url=url, queue=queue.name, **options)
        reader = ClaimStream(chosen, schema_of(chosen))
        reader.prepareForTriggerAvailableNow()
        opened.append(reader)
        return reader

    yield start
    for reader in opened:
        reader.stop()


def run(reader: ClaimStream, reads: Any, most: int = 100_000) -> list[int]:
    """Run batches until the query ends; returns how many messages each of them got. A batch reads some of its tasks."""
    start, found = reader.initialOffset(), list[int]()
    while (end := reader.latestOffset(start, ReadMaxRows(most))) != start:
        tasks = reads(len(found), list(reader.partitions(start, end)))
        found.append(sum(batch.num_rows for task in tasks for batch in reader.read(task)))
        assert len(found) < 100, "the query does not end"
        start = end
    return found


def fill(queue: shardq.Queue, count: int) -> None:
    with queue.producer(bundle_messages=10) as producer:
        for _ in range(8):  # each goes to another shard
            producer.send_many([b"x"] * (count // 8))


@on_every_store
@pytest.mark.parametrize("ack_mode", ["commit", "manual"])
def test_batches_that_nothing_reads_end_the_query_and_stay_in_the_queue(
    queue, stream, ack_mode, caplog
) -> None:
    fill(queue, 800)
    assert run(stream(ack_mode=ack_mode), lambda _, tasks: []) == [0]
    assert (queue.counts().ready, queue.counts().in_flight) == (800, 0)
    assert "run an action on the batch in foreachBatch" in caplog.text


def test_batches_of_few_shards_that_nothing_reads_end_the_query(queue, stream) -> None:
    fill(queue, 800)
    assert 1 < len(run(stream(), lambda _, tasks: [], most=1)) <= 8
    assert queue.counts().ready == 800


def test_a_batch_of_which_a_task_is_read_is_followed_by_others_until_all_is_done(queue, stream) -> None:
    fill(queue, 800)
    found = run(stream(min_partitions=4), lambda _, tasks: tasks[:1])
    assert (sum(found), queue.counts().ready, queue.counts().in_flight) == (800, 0, 0)


def test_the_next_query_reads_what_the_last_one_left(queue, stream) -> None:
    fill(queue, 800)
    run(stream(), lambda _, tasks: [])
    assert sum(run(stream(), lambda _, tasks: tasks)) == 800
    assert queue.counts().ready == 0


@pytest.mark.parametrize("function", [lambda rows, number: None, lambda rows, number: rows.take(1)])
def test_a_function_without_an_action_or_with_a_small_one_ends_the_query_on_spark(
    pipes, queue, function
) -> None:
    fill(queue, 800)
    query = pipes.run(pipes.stream(queue).writeStream.foreachBatch(function))
    assert query.exception() is None
