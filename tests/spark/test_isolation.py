"""A message that makes its batch fail becomes a dead letter, and its neighbours are done."""

from __future__ import annotations

import pytest

import shardq
from shardq.spark.isolation import isolate_failures


class Ledger:
    """Work that is done for all rows of a piece or for none, as a transaction does it."""

    def __init__(self, *poison: bytes) -> None:
        self.poison, self.calls = set(poison), 0
        self.done: list[bytes] = []

    def post(self, batch, batch_id: int) -> None:
        self.calls += 1
        bodies = [bytes(row.body) for row in batch.select("body").collect()]
        if self.poison & set(bodies):
            raise ValueError("this row was meant to fail\nwith details")
        self.done += bodies


BODIES = [b"%d" % number for number in range(20)]


def work_with(pipes, queue, ledger: Ledger, most: int) -> None:
    isolated = isolate_failures(ledger.post, url=pipes.url, queue=queue.name, most=most)
    pipes.run(pipes.stream(queue, ackMode="manual").writeStream.foreachBatch(isolated))


def test_messages_that_fail_their_batch_become_dead_letters_and_the_others_are_done_once(
    pipes, queue, client
) -> None:
    queue.producer().send_many(BODIES)
    ledger = Ledger(b"3", b"11")
    work_with(pipes, queue, ledger, most=2)
    assert sorted(ledger.done) == sorted({*BODIES} - ledger.poison)
    letters = client.queue(f"{queue.name}.dead").peek(10)
    reason = "fails its batch: this row was meant to fail"
    assert {(message.body, message.headers["shardq-reason"]) for message in letters} == {
        (b"3", reason),
        (b"11", reason),
    }
    assert queue.counts() == shardq.QueueCounts(0, 0, 0, 0, None)


def test_a_message_alone_in_its_batch_is_not_blamed_for_what_passes(pipes, queue, client) -> None:
    queue.producer().send(b"1")
    ledger = Ledger(b"1")

    def post(batch, batch_id: int) -> None:
        try:
            ledger.post(batch, batch_id)
        finally:
            ledger.poison.clear()  # as where a stop of the query has ended the job

    isolated = isolate_failures(post, url=pipes.url, queue=queue.name)
    pipes.run(pipes.stream(queue, ackMode="manual").writeStream.foreachBatch(isolated))
    assert (ledger.done, ledger.calls) == ([b"1"], 2)
    assert client.queue(f"{queue.name}.dead").counts().ready == 0


def test_where_more_fail_than_is_allowed_the_query_fails_and_nothing_is_a_dead_letter(
    pipes, queue, client
) -> None:
    queue.producer().send_many(BODIES)
    ledger = Ledger(*BODIES)
    with pytest.raises(Exception, match="meant to fail"):
        work_with(pipes, queue, ledger, most=1)
    assert ledger.calls < 20
    assert queue.counts().in_flight == 20
    assert client.queue(f"{queue.name}.dead").counts().ready == 0
