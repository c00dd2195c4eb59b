"""A broadcast between clients on every store."""

from __future__ import annotations

import os

import shardq
from shardq.broadcast import Broadcast
from tests.any_store import any_url

__all__ = ["any_url"]


def test_what_one_client_publishes_the_subscribers_of_others_receive(any_url: str) -> None:
    name = f"news{os.urandom(4).hex()}"
    with shardq.connect(any_url) as here, shardq.connect(any_url) as there:
        with Broadcast(there, name).subscribe() as one, Broadcast(there, name).subscribe() as other:
            assert Broadcast(here, name).publish(b"rain") == 2
            for subscriber in (one, other):
                batch = subscriber.receive(10, wait=30)
                assert batch.bodies == [b"rain"]
                batch.ack()
        assert Broadcast(here, name).publish(b"sun") == 0
        assert here.queues(name) == (f"{name}.subscribers",)
        here.delete_queue(f"{name}.subscribers")
