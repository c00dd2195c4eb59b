"""A thousand queues: what one of them costs is what it costs alone, counted in requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.cli.command import Session
from shardq.cli.commands.doctor import examine
from shardq.cli.commands.list_queues import lines
from shardq.storage.opening import open_store
from shardq.storage.store import Store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock

P = ParamSpec("P")
T = TypeVar("T")

pytestmark = pytest.mark.long

QUEUES = 1_000
SENT = 50
CONSUMED = 20


class Counting(WrappedStore):
    """Counts the requests, by their kinds."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: Counter[str] = Counter()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.asked[method] += 1
        return super().call(method, do, *args, **kwargs)

    def of(self, do: Callable[[], object]) -> int:
        """How many requests that takes."""
        before = self.asked.total()
        do()
        return self.asked.total() - before


@pytest.fixture
def store(url: str, clock: ManualClock) -> Iterator[Counting]:
    store = Counting(open_store(f"{url}?synchronous=normal", clock))
    yield store
    store.close()


def test_what_a_queue_of_a_thousand_costs_is_what_it_costs_alone(store: Counting, url: str) -> None:
    session, client = Session(url), shardq.Client(store)
    vars(session).update(store=store, client=client)
    names = [f"tenant-{number:04}" for number in range(QUEUES)]

    def create(wanted: list[str]) -> None:
        for name in wanted:
            client.create_queue(name, max_deliveries=None)

    # Then to create the last ones takes what it took to create the first
    first = store.of(lambda: create(names[:10]))
    create(names[10:-10])
    assert store.of(lambda: create(names[-10:])) == first
    for name in names[:SENT]:
        client.queue(name).producer().send_many([b"x"] * 3)
    # And to list them is one request, to count them two for each and one for each shard in use
    assert store.of(client.queues) == 1
    counted: list[int] = []
    asked = store.of(
        lambda: counted.append(sum(each.counts.ready for each in lines(session, "", counts=True)))
    )
    assert counted == [3 * SENT]
    assert asked <= 1 + 3 * QUEUES + SENT
    # And doctor asks as little of all, and of one as little as if it were alone
    assert store.of(lambda: examine(client, None)) <= 5 + 4 * QUEUES + SENT
    assert store.of(lambda: examine(client, names[-1])) <= 10


def test_a_consumer_of_a_few_queues_of_a_thousand_asks_nothing_of_the_others(
    store: Counting, clock: ManualClock
) -> None:
    client = shardq.Client(store)

    def asked() -> int:
        """How many requests it takes to wait for half a minute, and to receive all messages."""
        for name in names:
            client.queue(name).producer().send_many([b"x"] * 3)
        before = store.asked.total()
        with client.consumer(names) as consumer:
            received = 0
            while received < 3 * CONSUMED:
                batch = consumer.receive(10, wait=1)
                received += len(batch)
                batch.ack()
            for _ in range(30):
                assert not consumer.receive(1)
                clock.advance(1)
        return store.asked.total() - before

    names = [f"few-{number}" for number in range(CONSUMED)]
    for name in names:
        client.create_queue(name, max_deliveries=None)
    alone = asked()
    for number in range(QUEUES):
        client.create_queue(f"other-{number}", max_deliveries=None)
    assert asked() <= alone * 1.2
