"""A broadcast between clients on every store."""

from __future__ import annotations

import os

import pytest

import shardq
from shardq.broadcast import Broadcast


@pytest.fixture(
    params=[
        "url",
        pytest.param("cassandra_url", marks=pytest.mark.cassandra),
        pytest.param("replica_set_url", marks=pytest.mark.mongodb),
    ]
)
def any_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


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
