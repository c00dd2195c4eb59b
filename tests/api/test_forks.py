"""A forked child never waits for what its parent's threads held, and sends under ids of its own."""

from __future__ import annotations

import os
import sqlite3
import threading
import time

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.requests import Append
from shardq.storage.sqlite import schema
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.testing.seam import context_of
from tests.forking import all_held, forked, locks_of


def test_children_of_a_process_that_sends_from_threads_send_through_its_producer_and_new_ones(
    url: str,
) -> None:
    with shardq.connect(url) as client:
        queue = client.create_queue("q", shards=2)
        producer = queue.producer()
        started, stop = threading.Barrier(3), threading.Event()
        ids: list[str] = []

        def send() -> None:
            ids.append(producer.send(b"parent"))
            started.wait()
            while not stop.is_set():
                ids.append(producer.send(b"parent"))

        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        try:
            for _ in range(20):
                answer = forked(lambda: f"{producer.send(b'child')} {queue.producer().send(b'child')}")
                ids += answer.split()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert len(set(ids)) == len(ids)
        assert queue.counts().ready == len(ids)


def test_a_child_sends_while_a_thread_of_its_parent_stores_what_others_gave_it(
    url: str, clock: ManualClock
) -> None:
    parent, under_way, go_on = os.getpid(), threading.Event(), threading.Event()

    class Slow(WrappedStore):
        def append(self, request: Append) -> None:
            if os.getpid() == parent:
                under_way.set()
                go_on.wait()
            super().append(request)

    queue = shardq.Client(Slow(open_store(url, clock))).create_queue("q")
    producer = queue.producer()
    thread = threading.Thread(target=producer.send, args=(b"parent",))
    thread.start()
    under_way.wait()
    try:
        assert queue.get(forked(lambda: producer.send(b"child"))) is not None
    finally:
        go_on.set()
        thread.join()
    assert queue.counts().ready == 2


def test_a_child_uses_its_parents_client_although_every_lock_of_it_was_held(
    url: str, clock: ManualClock
) -> None:
    with shardq.connect(url, clock=clock) as client:
        queue = client.create_queue("q")
        producer = queue.producer()
        producer.send(b"parent")

        def use() -> str:
            producer.send_many([b"child"] * 3)
            queue.producer(linger=0.001).send(b"child", dedupe_key="key")
            client.create_queue("other")
            with queue.consumer() as consumer:
                batch = consumer.receive(10)
                batch[0].dead_letter("bad")
                batch.ack()
            return f"{len(batch)} {client.counters.sent}"

        roots = (client, queue, producer, shardq)
        assert len(locks_of(*roots)) > 4
        with all_held(*roots):
            answer = forked(use)
        assert answer == "5 5"
        assert producer.send(b"parent")


@pytest.mark.parametrize("options", [{}, {"keep_leases": True}, {"prefetch": 10}])
def test_a_consumer_is_of_the_process_that_made_it(queue: shardq.Queue, options: dict[str, int]) -> None:
    queue.producer().send(b"x")

    def use() -> str:
        try:
            consumer.receive(1)
        except shardq.Closed as error:
            consumer.close()
            return str(error)
        return ""

    with queue.consumer(**options) as consumer:  # type: ignore[arg-type]
        assert len(consumer.receive(1, wait=20)) == 1
        assert "make another one in this process" in forked(use)


def test_children_start_on_shards_of_their_own(queue: shardq.Queue) -> None:
    placement = context_of(queue).placement
    layout = shardq.QueueSettings(shards=10_000, time_shards=1).layout
    turns = {forked(lambda: str(placement.choose(layout, 0, 2))) for _ in range(6)}
    assert len(turns) > 1


def test_a_child_uses_the_file_although_a_thread_of_its_parent_was_about_to_bring_its_schema_up_to_date(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = threading.Event()
    apply = schema.apply

    def slowly(sql: sqlite3.Connection) -> None:
        sql.execute("BEGIN IMMEDIATE")
        under_way.set()
        time.sleep(0.2)  # the fork waits for it; a connection that is open then would spoil the child's locks
        sql.execute("ROLLBACK")
        apply(sql)

    with shardq.connect(f"{url}?busy_timeout=2", retry_seconds=0) as client:
        queue = client.create_queue("q")
        monkeypatch.setattr(schema, "apply", slowly)
        thread = threading.Thread(target=client.create_schema)
        thread.start()
        assert under_way.wait(10)
        assert forked(lambda: queue.producer().send(b"child")).startswith("q:")
        thread.join()
