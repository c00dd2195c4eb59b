"""Topics on every store: several relays at once, a relay that died, an earlier start and a rewinding."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

import shardq
from shardq.testing.seam import engine_of
from shardq.topics import Topic
from tests.topics.receiving import received


@pytest.fixture(
    params=[
        "url",
        pytest.param("cassandra_url", marks=pytest.mark.server),
        pytest.param("replica_set_url", marks=pytest.mark.server),
        pytest.param("postgresql_url", marks=pytest.mark.server),
    ]
)
def any_client(request: pytest.FixtureRequest, nobody_relays: None) -> Iterator[shardq.Client]:
    with shardq.connect(str(request.getfixturevalue(request.param))) as client:
        yield client


def test_relays_at_once_deliver_each_message_once_while_subscriptions_come_and_are_rewound(
    any_client: shardq.Client,
) -> None:
    name = f"t{os.urandom(4).hex()}"
    topic = any_client.create_topic(name, retention=3600)
    first = topic.subscribe("first", visibility_timeout=5)
    odd = topic.subscribe("odd", filter="odd.*", visibility_timeout=5)
    published: list[bytes] = []
    ended = threading.Event()
    errors: list[Exception] = []

    def relay() -> None:
        own = Topic(engine_of(any_client), name)
        try:
            while not ended.is_set():
                own.relay()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=relay) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(12):
        bodies = [b"%d-%d" % (number, place) for place in range(number * 7 + 1)]
        topic.publish_many(bodies, subject="odd.x" if number % 2 else "even.x")
        published += bodies
        if number == 5:
            late = topic.subscribe("late", start="earliest", visibility_timeout=5)
        if number == 8:
            late.seek("earliest")
    ended.set()
    for thread in threads:
        thread.join()
    topic.relay()
    assert not errors
    assert sorted(received(first)) == sorted(published)
    assert sorted(received(late)) == sorted(published)
    assert sorted(received(odd)) == sorted(body for body in published if int(body.split(b"-")[0]) % 2)
    late.delete()
    any_client.delete_topic(name)
    assert any_client.queues(f"_shardq/topics/{name}/") == ()
