"""A stream receives every message, replays exactly, and leaves nothing in flight."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

import shardq
from tests.spark.every_store import on_every_store


def fill(queue: shardq.Queue, count: int) -> None:
    with queue.producer(bundle_messages=100) as producer:
        producer.send_many(b"%d" % number for number in range(count))


def numbers_of(rows) -> list[int]:
    return sorted(int(bytes(row.body)) for row in rows.collect())


def fail_in_the_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("this task was meant to fail")
        yield batch.slice(batch.num_rows // 2)


def test_everything_is_delivered_once_and_nothing_is_left_in_flight(pipes, queue) -> None:
    fill(queue, 3_000)
    out = pipes.folder / "out"
    stream = (
        pipes.stream(queue, maxMessagesPerTrigger=1_000)
        .writeStream.format("parquet")
        .option("path", str(out))
    )
    query = pipes.run(stream)
    assert numbers_of(pipes.spark.read.parquet(str(out))) == list(range(3_000))
    counts = queue.counts()
    assert (counts.ready, counts.in_flight, counts.delayed) == (0, 0, 0)
    assert sum(progress.numInputRows for progress in query.recentProgress) == 3_000


@on_every_store
def test_a_task_that_fails_after_a_partial_read_gets_the_same_rows_again(pipes, queue) -> None:
    fill(queue, 2_000)
    out = pipes.folder / "out"
    rows = pipes.stream(queue).select("body", "deliveries")
    rows = rows.mapInArrow(fail_in_the_first_attempt, rows.schema)
    pipes.run(rows.writeStream.format("parquet").option("path", str(out)))
    found = pipes.spark.read.parquet(str(out))
    assert numbers_of(found) == list(range(2_000))
    assert found.where("deliveries > 1").count() == 0
    assert queue.counts().in_flight == 0


def test_every_action_on_a_batch_sees_the_same_rows(pipes, queue) -> None:
    fill(queue, 1_000)
    seen: list[tuple[list[int], list[int]]] = []

    def look_twice(rows, batch_id: int) -> None:
        seen.append((numbers_of(rows), numbers_of(rows)))

    pipes.run(pipes.stream(queue, maxMessagesPerTrigger=400).writeStream.foreachBatch(look_twice))
    assert all(first == second for first, second in seen)
    assert sorted(number for first, _ in seen for number in first) == list(range(1_000))


@on_every_store
def test_a_restart_after_a_failed_batch_replays_its_rows(pipes, queue) -> None:
    fill(queue, 1_500)
    seen: dict[int, list[list[int]]] = {}

    def fail_once(rows, batch_id: int) -> None:
        seen.setdefault(batch_id, []).append(numbers_of(rows))
        if batch_id == 1 and len(seen[1]) == 1:
            raise RuntimeError("this batch was meant to fail")

    def stream():
        checkpoint = str(pipes.folder / "checkpoint")
        rows = pipes.stream(queue, maxMessagesPerTrigger=500, checkpointLocation=checkpoint)
        return rows.writeStream.foreachBatch(fail_once)

    with pytest.raises(Exception, match="meant to fail"):
        pipes.run(stream())
    assert queue.counts().in_flight == len(seen[1][0]) > 0
    pipes.run(stream())
    assert seen[1][0] == seen[1][1]
    assert sorted(number for runs in seen.values() for number in runs[-1]) == list(range(1_500))
    assert queue.counts().in_flight == 0


def test_a_batch_that_was_done_and_not_acked_before_the_query_stopped_is_acked_by_the_next_one(
    pipes, queue
) -> None:
    fill(queue, 500)
    seen: list[int] = []

    def look(rows, batch_id: int) -> None:
        seen.extend(numbers_of(rows))

    writer = pipes.stream(queue).writeStream.foreachBatch(look)
    query = writer.option("checkpointLocation", str(pipes.folder / "checkpoint")).trigger(once=True).start()
    query.awaitTermination(60)
    pipes.run(pipes.stream(queue).writeStream.foreachBatch(look))
    assert sorted(seen) == list(range(500))
    assert queue.counts().in_flight == 0


def test_a_plain_consumer_and_a_stream_share_the_messages(pipes, queue) -> None:
    fill(queue, 6_000)
    streamed: list[int] = []
    received: list[int] = []
    stream_has_some, consumer_has_some = threading.Event(), threading.Event()

    def look(rows, batch_id: int) -> None:
        streamed.extend(numbers_of(rows))
        stream_has_some.set()
        assert consumer_has_some.wait(60)

    def consume() -> None:
        assert stream_has_some.wait(60)
        with queue.consumer() as consumer:
            for batch in consumer.batches(100, wait=1.0):
                received.extend(int(message.body) for message in batch)
                batch.ack()
                consumer_has_some.set()

    beside = threading.Thread(target=consume)
    beside.start()
    pipes.run(pipes.stream(queue, maxMessagesPerTrigger=1_000).writeStream.foreachBatch(look))
    beside.join()
    assert streamed
    assert received
    assert sorted(streamed + received) == list(range(6_000))


@on_every_store
def test_nothing_comes_back_of_a_batch_whose_query_is_stopped_before_its_next_trigger(pipes, queue) -> None:
    fill(queue, 200)
    checkpoint = str(pipes.folder / "checkpoint")
    stream = pipes.stream(queue, checkpointLocation=checkpoint, leaseSeconds=2).writeStream.format("noop")
    query = stream.option("checkpointLocation", checkpoint).trigger(processingTime="1 hour").start()
    deadline = time.monotonic() + 120
    while queue.counts() != shardq.QueueCounts(0, 0, 0, 0, None):
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, "it was not acked"
        time.sleep(0.1)
    query.stop()
    assert (pipes.folder / "checkpoint" / "commits" / "0").exists()


@on_every_store
def test_leases_are_kept_while_a_batch_takes_longer_than_they_last(pipes, queue) -> None:
    fill(queue, 200)
    stolen: list[int] = []

    def work_slowly(rows, batch_id: int) -> None:
        rows.collect()
        with queue.consumer() as consumer:
            stolen.extend(len(batch) for batch in consumer.batches(1_000, wait=3.0))

    stream = pipes.stream(queue, leaseSeconds=1, failOnLeaseLoss="true")
    pipes.run(stream.writeStream.foreachBatch(work_slowly))
    assert stolen == []
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def lose(queue: shardq.Queue):
    """Work on a batch while somebody gives its messages to another consumer."""

    def work(rows, batch_id: int) -> None:
        receipts = [row.receipt for row in rows.collect()]
        queue.release(receipts[:10])
        with queue.consumer() as consumer:
            consumer.receive(10, wait=5.0)

    return work


def test_lost_leases_are_passed_over_or_fail_the_query(pipes, make_queue) -> None:
    queue, strict = make_queue(), make_queue()
    fill(queue, 100)
    fill(strict, 100)
    pipes.run(pipes.stream(queue).writeStream.foreachBatch(lose(queue)), "lenient")
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 10)
    with pytest.raises(Exception, match="their lease was over"):
        pipes.run(
            pipes.stream(strict, failOnLeaseLoss="true").writeStream.foreachBatch(lose(strict)), "strict"
        )


def test_with_manual_acks_the_job_settles_by_receipt(pipes, queue) -> None:
    fill(queue, 300)

    def settle(rows, batch_id: int) -> None:
        kept = rows.select("body", "receipt").toPandas()
        numbers = kept["body"].map(lambda body: int(bytes(body)))
        for operation, chosen, options in (
            ("ack", kept[numbers % 3 == 0], {}),
            ("release", kept[numbers % 3 == 1], {"delaySeconds": "60"}),
            ("extend", kept[numbers % 3 == 2], {"leaseSeconds": "600"}),
        ):
            receipts = pipes.spark.createDataFrame([(text,) for text in chosen["receipt"]], "receipt string")
            pipes.write(receipts, queue, operation=operation, **options)

    pipes.run(pipes.stream(queue, ackMode="manual").writeStream.foreachBatch(settle))
    counts = queue.counts()
    assert (counts.ready, counts.delayed, counts.in_flight) == (0, 100, 100)
    with pytest.raises(Exception, match="is not a receipt"):
        pipes.write(pipes.spark.createDataFrame([("x",)], "receipt string"), queue, operation="ack")


@on_every_store
def test_manual_leases_are_kept_for_as_long_as_the_batch_takes_and_longer_where_the_job_said_so(
    pipes, queue
) -> None:
    fill(queue, 200)
    stolen: list[int] = []

    def settle_slowly(rows, batch_id: int) -> None:
        kept = rows.select("body", "receipt").persist()
        number = "cast(cast(body as string) as int)"
        for where, options in (
            ("% 4 = 0", {"operation": "extend", "leaseSeconds": "600"}),
            ("% 4 = 1", {"operation": "release", "delaySeconds": "600"}),
        ):
            pipes.write(kept.where(f"{number} {where}"), queue, **options)
        with queue.consumer() as consumer:  # three leases pass meanwhile
            stolen.extend(len(batch) for batch in consumer.batches(1_000, wait=3.0))
        pipes.write(kept.where(f"{number} % 4 = 2"), queue, operation="ack")
        kept.unpersist()

    stream = pipes.stream(queue, ackMode="manual", leaseSeconds=1)
    pipes.run(stream.writeStream.foreachBatch(settle_slowly))
    assert stolen == []
    with queue.consumer() as consumer:  # nobody keeps the leases of the rest any more
        left = [message for batch in consumer.batches(1_000, wait=3.0) for message in batch]
    assert sorted(int(message.body) for message in left) == list(range(3, 200, 4))
    assert {int(message.body) % 4 for message in queue.peek(1_000)} == {0, 1, 3}
    assert (queue.counts().delayed, queue.counts().in_flight) == (50, 100)


@on_every_store
def test_everything_of_any_priority_is_done_beside_newer_messages_that_go_first(pipes, queue) -> None:
    for priority in (5, 0, 9, 3):
        with queue.producer(bundle_messages=100) as producer:
            producer.send_many([b"%d" % (priority * 1_000 + n) for n in range(600)], priority=priority)
    seen: list[int] = []
    newer = iter(range(10_000, 20_000))

    def work(rows, batch_id: int) -> None:
        seen.extend(numbers_of(rows))
        if batch_id < 3:
            with queue.producer(bundle_messages=10) as producer:
                producer.send_many([b"%d" % next(newer) for _ in range(200)], priority=0)

    pipes.run(pipes.stream(queue, maxMessagesPerTrigger=700).writeStream.foreachBatch(work))
    older = [priority * 1_000 + n for priority in (0, 3, 5, 9) for n in range(600)]
    assert sorted(number for number in seen if number < 10_000) == older
    assert len(seen) == len(set(seen))
    counts = queue.counts()
    assert counts.in_flight == 0
    assert counts.ready == 600 - (len(seen) - len(older))


def test_a_paused_queue_and_an_empty_one_give_no_batch(pipes, queue) -> None:
    fill(queue, 10)
    queue.pause()
    query = pipes.run(pipes.stream(queue).writeStream.format("noop"))
    assert sum(progress.numInputRows for progress in query.recentProgress) == 0
    queue.resume()
    pipes.run(pipes.stream(queue).writeStream.format("noop"))
    query = pipes.run(pipes.stream(queue).writeStream.format("noop"))
    assert queue.counts().ready == 0


def test_messages_that_were_delivered_too_often_go_to_the_dead_letter_queue(
    pipes, make_queue, client
) -> None:
    queue = make_queue(max_deliveries=2)
    fill(queue, 20)
    with queue.consumer() as consumer:
        for _ in range(2):
            consumer.receive(20, wait=1.0).release()
    pipes.run(pipes.stream(queue).writeStream.format("noop"))
    assert client.queue(f"{queue.name}.dead").counts().ready == 20
    assert queue.counts().in_flight == 0


def test_dead_letters_by_receipt_are_made_once_and_lost_ones_are_told(pipes, make_queue, client) -> None:
    queue = make_queue()
    fill(queue, 4)
    batch = queue.consumer().receive(4)
    mine, lost = [message.receipt for message in batch][:3], batch[3]
    lost.release()
    queue.consumer().receive(1)

    def give_up(receipts: list[str], **options: object) -> None:
        rows = pipes.spark.createDataFrame([(text,) for text in receipts], "receipt string")
        pipes.write(rows, queue, operation="dead_letter", reason="broken", **options)

    for _ in range(2):
        give_up(mine)
    letters = client.queue(f"{queue.name}.dead").peek(10)
    assert [message.headers["shardq-reason"] for message in letters] == ["broken"] * 3
    with pytest.raises(Exception, match="lease"):
        give_up([lost.receipt], failOnLeaseLoss="true")
    assert queue.counts().in_flight == 1


@on_every_store
def test_a_poison_message_becomes_a_dead_letter_and_the_query_goes_on(pipes, make_queue, client) -> None:
    queue = make_queue(max_deliveries=2)
    with queue.producer() as producer:
        producer.send_many([b"poison", b"beside it"])
    seen: list[set[tuple[str, int]]] = []

    def note(rows, batch_id: int) -> None:
        seen.append({(bytes(row.body).decode(), row.deliveries) for row in rows.collect()})
        rows.selectExpr("assert_true(body <> binary('poison'))").collect()

    def run() -> None:
        pipes.run(pipes.stream(queue, failOnLeaseLoss="true").writeStream.foreachBatch(note))

    for _ in range(2):
        with pytest.raises(Exception, match="poison"):
            run()
    with queue.producer() as producer:
        producer.send(b"later")
    run()
    assert seen == [
        {("poison", 1), ("beside it", 1)},
        {("poison", 2), ("beside it", 2)},
        set(),
        {("later", 1)},
    ]
    letters = client.queue(f"{queue.name}.dead").peek(10)
    assert {(message.body, message.headers["shardq-deliveries"]) for message in letters} == {
        (b"poison", 2),
        (b"beside it", 2),
    }
    assert queue.peek() == []
