"""A forked child waits for no lock of its parent's client, nor of the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import shardq
from shardq.storage.cassandra.store import CassandraStore
from tests.forking import all_held, forked

pytestmark = pytest.mark.server


def test_a_child_uses_its_parents_client_although_every_lock_of_it_was_held(
    open_store: Callable[[], CassandraStore],
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"f{os.urandom(6).hex()}", shards=1, time_shards=1)
    producer = queue.producer()
    producer.send(b"parent")

    def use() -> str:
        producer.send(b"child")
        with queue.consumer() as consumer:
            batch = consumer.receive(10, wait=10)
            batch.ack()
        return str(len(batch))

    with all_held(client, queue, producer):
        assert forked(use) == "2"
    producer.send(b"parent")
    assert queue.counts().ready == 1
    client.delete_queue(queue.name)


@contextmanager
def held_by_another_thread(locks: Sequence[Any]) -> Iterator[None]:
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.fixture
def reactor() -> Any:
    return pytest.importorskip("cassandra.io.libevreactor")


@contextmanager
def locks_held_of(reactor: Any) -> Iterator[None]:
    loop = reactor._global_loop
    with held_by_another_thread(
        [loop._lock_thread, loop._conn_set_lock, *(connection.lock for connection in loop._live_conns)]
    ):
        yield


def test_a_child_sends_although_a_thread_of_its_parent_held_the_locks_of_the_drivers_connections(
    open_store: Callable[[], CassandraStore], reactor: Any
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"f{os.urandom(6).hex()}", shards=1, time_shards=1)
    producer = queue.producer()
    producer.send(b"parent")
    with locks_held_of(reactor):
        answer = forked(lambda: producer.send(b"child"))
    producer.send(b"parent")
    assert queue.get(answer) is not None
    assert queue.counts().ready == 3
    client.delete_queue(queue.name)


def test_a_child_that_never_used_the_client_ends_although_a_thread_of_its_parent_held_those_locks(
    open_store: Callable[[], CassandraStore], reactor: Any
) -> None:
    client = shardq.Client(open_store())
    queue = client.create_queue(f"f{os.urandom(6).hex()}", shards=1, time_shards=1)

    def end() -> str:
        reactor._cleanup(reactor._global_loop)  # what the driver does when a process ends
        return "ended"

    with locks_held_of(reactor):
        assert forked(end) == "ended"
    queue.producer().send(b"parent")
    assert queue.counts().ready == 1
    client.delete_queue(queue.name)
