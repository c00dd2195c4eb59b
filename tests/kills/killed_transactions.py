"""What has to hold of transactions of the application when its process dies between any two of its requests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from shardq.client import Client
from shardq.storage.store import Store
from shardq.tasks import Tasks
from tests.kills.killers import Killer
from tests.kills.scene import MOST, Scene

__all__ = ["KilledTransactions"]

OLD, NEW, HELD = b"old", b"new", b"held"

tasks = Tasks()


@tasks.task(keep_result=0)
def work(number: int) -> int:
    """Do what a task does."""
    return number


@pytest.mark.long
@pytest.mark.timeout(600)
class KilledTransactions:
    """A store's tests provide the fixture ``killer``, if the store takes part in transactions."""

    @pytest.fixture
    def scene_of_transactions(self, killer: Killer) -> Iterator[Scene]:
        scene = Scene(killer)
        yield scene
        scene.close()

    def test_a_send_an_ack_and_a_release_stand_or_fall_with_the_row(
        self, scene_of_transactions: Scene
    ) -> None:
        scene = scene_of_transactions
        client = Client(scene.healthy)
        for requests in scene.killer.every_third(MOST):
            # Given two messages that are held
            queue = client.create_queue(scene.new_name(), shards=1, time_shards=1)
            queue.producer().send_many([OLD, HELD])
            held = {message.body: message.receipt for message in queue.consumer().receive(2, wait=10)}
            row = os.urandom(8)

            # When a process that writes a row, sends a message and a task, acks and releases in one transaction dies
            def act(store: Store, row: bytes = row, name: str = queue.name, held: dict = held) -> None:
                transaction = scene.killer.begin(row)
                transaction.write()
                tasks.bind(client := Client(store))
                with client.transaction(connection=transaction.connection) as within:
                    within.queue(name).producer().send(NEW)
                    within.queue(name).ack([held[OLD]])
                    within.queue(name).release([held[HELD]])
                work.options(queue=name).send(1, transaction=transaction.connection)
                transaction.commit()

            killed = scene.killer.run(act, requests)
            # Then all of it is there, or nothing
            written = scene.killer.is_written(row)
            assert written or killed
            counts = queue.counts()
            expected = [HELD, NEW, work.signature(1).body] if written else [HELD, OLD]
            assert sorted(stored.body for stored in queue.peek(10)) == sorted(expected), requests
            assert (counts.ready, counts.in_flight) == ((3, 0) if written else (0, 2)), requests
            queue.purge()
            assert scene.audit(queue.name) == []
            if not killed:
                return
        pytest.fail("the transaction has no end")
