"""A task that is tried again, killed or run twice sends its rows once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from tests.spark.every_store import on_every_store
from tests.spark.killing import kill_workers_when

COUNT = 44_000  # two parts for each of two tasks, and three batches of Arrow


def another_order_in_every_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a shuffle does: the rows of a partition, in an order and in batches that change with the attempt."""
    import numpy as np

    attempt = TaskContext.get().attemptNumber()
    table = pa.Table.from_batches(list(batches))
    order = np.random.default_rng(attempt).permutation(table.num_rows)
    yield from table.take(order).to_batches(max_chunksize=1_000 + 777 * attempt)


def fail_in_the_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number, batch in enumerate(batches):
        if number == 2 and TaskContext.get().attemptNumber() == 0:
            raise RuntimeError("this task was meant to fail")
        yield batch


@pytest.mark.long
@on_every_store
def test_killed_workers_leave_no_duplicate_and_no_gap_of_shuffled_rows(pipes, queue, numbers_in) -> None:
    rows = pipes.bodies(COUNT, size=100).repartition(2)
    rows = rows.mapInArrow(another_order_in_every_attempt, rows.schema)
    killed: list[int] = []

    def kill() -> None:
        killed.append(kill_workers_when(lambda: queue.counts().ready > 0))

    killer = threading.Thread(target=kill)
    killer.start()
    pipes.write(rows, queue, throughputRowsPerSec=20_000)
    killer.join()
    assert killed[0] > 0
    assert numbers_in(queue) == list(range(COUNT))


@on_every_store
def test_a_task_that_fails_after_a_partial_write_is_completed(pipes, queue, numbers_in) -> None:
    rows = pipes.bodies(COUNT, size=100)
    rows = rows.mapInArrow(fail_in_the_first_attempt, rows.schema)
    pipes.write(rows, queue, inputOrder="stable")
    assert numbers_in(queue) == list(range(COUNT))


def test_messages_that_are_worked_at_once_are_not_sent_again_by_a_retry(pipes, queue) -> None:
    rows = pipes.bodies(COUNT, size=100).repartition(2)
    rows = rows.mapInArrow(another_order_in_every_attempt, rows.schema)
    seen: list[int] = []
    done = threading.Event()

    def work() -> None:
        with queue.consumer() as consumer:
            while not done.is_set():
                batch = consumer.receive(5_000, wait=0.2)
                seen.extend(int(message.body.rstrip(b".")) for message in batch)
                batch.ack()

    worker = threading.Thread(target=work)
    worker.start()
    killer = threading.Thread(target=lambda: kill_workers_when(lambda: bool(seen)))
    killer.start()
    pipes.write(rows, queue, throughputRowsPerSec=20_000)
    killer.join()
    while queue.counts().ready:
        pass
    done.set()
    worker.join()
    assert sorted(seen) == list(range(COUNT))


@on_every_store
def test_a_job_that_is_run_again_under_its_run_id_sends_nothing_twice(pipes, queue, numbers_in) -> None:
    rows = pipes.bodies(5_000)
    pipes.write(rows, queue, runId="nightly-7")
    pipes.write(rows, queue, runId="nightly-7")
    assert queue.counts().ready == 5_000
    pipes.write(rows, queue, runId="nightly-8")
    assert queue.counts().ready == 10_000


def test_a_job_that_is_run_again_with_other_rows_is_refused(pipes, queue) -> None:
    pipes.write(pipes.bodies(1_000), queue, runId="nightly-7")
    try:
        pipes.write(pipes.bodies(1_000, start=500), queue, runId="nightly-7")
    except Exception as error:
        assert "holds other messages than in an earlier attempt" in str(error)
    else:
        raise AssertionError("it was not refused")
    assert queue.counts().ready == 1_000
