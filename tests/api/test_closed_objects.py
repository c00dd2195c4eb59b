"""What is closed stays closed: whatever is called on it raises Closed, and the store is not opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock
from shardq.worker import Worker

P = ParamSpec("P")
T = TypeVar("T")


class OpenedOnce(WrappedStore):
    """A store that says what was asked of it after it was closed."""

    closed = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: list[str] = []

    def close(self) -> None:
        self.closed = True
        super().close()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.closed:
            self.asked.append(method)
        return do(*args, **kwargs)


class Scene:
    """A client with all that it has made, of which it was closed first."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self.store = OpenedOnce(open_store(url, clock))
        self.client = shardq.Client(self.store, retry_seconds=0.1)
        self.queue = self.client.create_queue("q", history_retention=60)
        self.producer = self.queue.producer()
        self.ids = self.producer.send_many([b"x"] * 20)
        self.consumer = self.queue.consumer()
        self.keeping = self.queue.consumer(keep_leases=True)
        self.prefetching = self.queue.consumer(prefetch=2)
        self.batch = self.consumer.receive(2)
        self.keeping.receive(2)
        self.prefetching.receive(1)
        self.receipt = self.batch[0].receipt
        self.client.close()


@pytest.fixture
def scene(url: str, clock: ManualClock) -> Iterator[Scene]:
    scene = Scene(url, clock)
    yield scene
    scene.client.close()
    for consumer in (scene.consumer, scene.keeping, scene.prefetching):
        consumer.close()
    asked = scene.store.asked
    # The thread that prefetches may have been about to wait when the client was closed
    assert asked in ([], ["wait"])


CALLS: dict[str, Callable[[Scene], Any]] = {
    "client.create_queue": lambda scene: scene.client.create_queue("other"),
    "client.queue": lambda scene: scene.client.queue("q"),
    "client.queues": lambda scene: scene.client.queues(),
    "client.exists": lambda scene: scene.client.exists("q"),
    "client.delete_queue": lambda scene: scene.client.delete_queue("q"),
    "client.create_schema": lambda scene: scene.client.create_schema(),
    "client.now": lambda scene: scene.client.now(),
    "client.diagnose": lambda scene: scene.client.diagnose(),
    "queue.counts": lambda scene: scene.queue.counts(),
    "queue.shard_states": lambda scene: scene.queue.shard_states(),
    "queue.peek": lambda scene: scene.queue.peek(),
    "queue.get": lambda scene: scene.queue.get(scene.ids[0]),
    "queue.remove": lambda scene: scene.queue.remove(scene.ids[0]),
    "queue.purge": lambda scene: scene.queue.purge(),
    "queue.history": lambda scene: list(scene.queue.history()),
    "queue.replay": lambda scene: scene.queue.replay(),
    "queue.alter": lambda scene: scene.queue.alter(shards=2),
    "queue.pause": lambda scene: scene.queue.pause(),
    "queue.resume": lambda scene: scene.queue.resume(),
    "queue.redrive": lambda scene: scene.queue.redrive(),
    "queue.sweep": lambda scene: scene.queue.sweep(),
    "queue.ack": lambda scene: scene.queue.ack([scene.receipt]),
    "queue.release": lambda scene: scene.queue.release([scene.receipt]),
    "queue.extend": lambda scene: scene.queue.extend([scene.receipt], 5),
    "queue.producer": lambda scene: scene.queue.producer().send(b"x"),
    "queue.consumer": lambda scene: scene.queue.consumer().receive(),
    "producer.send": lambda scene: scene.producer.send(b"x"),
    "producer.send_many": lambda scene: scene.producer.send_many([b"x"]),
    "consumer.receive": lambda scene: scene.consumer.receive(),
    "consumer.pop": lambda scene: scene.consumer.pop(),
    "consumer.batches": lambda scene: list(scene.consumer.batches(1, wait=0)),
    "prefetching.receive": lambda scene: scene.prefetching.receive(),
    "batch.ack": lambda scene: scene.batch.ack(),
    "batch.release": lambda scene: scene.batch.release(),
    "batch.release uncounted": lambda scene: scene.batch.release(count=False),
    "batch.extend": lambda scene: scene.batch.extend(5),
    "batch.forward": lambda scene: scene.batch.forward("q"),
    "batch.dead_letter": lambda scene: scene.batch.dead_letter("bad"),
    "message.ack": lambda scene: scene.batch[0].ack(),
    "worker.run": lambda scene: Worker(scene.queue, print, idle_exit=0).run(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_closed_client_does_nothing_more_and_says_so(scene: Scene, name: str) -> None:
    with pytest.raises(shardq.Closed) as caught:
        CALLS[name](scene)
    assert "closed" in str(caught.value)
    assert not caught.value.retryable


def test_what_was_made_by_a_closed_client_is_closed_without_an_error(scene: Scene) -> None:
    for closable in (scene.producer, scene.consumer, scene.keeping, scene.prefetching, scene.client):
        closable.close()
        closable.close()


def test_the_numbers_and_bodies_that_a_client_has_can_still_be_read(scene: Scene) -> None:
    assert scene.client.counters.sent == 20
    assert scene.batch.bodies == [b"x", b"x"]


class ClosedMeanwhile(WrappedStore):
    """A store whose client is closed, once it is known, while a request of one kind is going on."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.method = "list_queues"
        self.client: shardq.Client | None = None
        self.answers: list[shardq.ShardqError] = []
        self.seen: list[str] = []

    def close(self) -> None:
        self.seen.append("close")
        super().close()

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if method == self.method and self.client is not None:
            self.client.close()
            self.seen.append(method)
            if self.answers:
                raise self.answers.pop()
        return do(*args, **kwargs)


@pytest.fixture
def closed_meanwhile(url: str, clock: ManualClock) -> ClosedMeanwhile:
    store = ClosedMeanwhile(open_store(url, clock))
    client = shardq.Client(store, retry_seconds=5)
    client.create_queue("q")
    store.client = client
    return store


def test_a_call_that_goes_on_beside_the_close_leaves_no_connection_behind(
    closed_meanwhile: ClosedMeanwhile,
) -> None:
    assert closed_meanwhile.client is not None
    assert "q" in closed_meanwhile.client.queues()
    assert closed_meanwhile.seen == ["close", "list_queues", "close"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (shardq.StoreUnavailable("away"), shardq.Closed),
        (shardq.OutcomeUnknown("lost"), shardq.OutcomeUnknown),
    ],
)
def test_a_call_that_fails_beside_the_close_is_not_repeated(
    closed_meanwhile: ClosedMeanwhile, answer: shardq.ShardqError, error: type[shardq.ShardqError]
) -> None:
    assert closed_meanwhile.client is not None
    closed_meanwhile.answers = [answer]
    with pytest.raises(error):
        closed_meanwhile.client.queues()
    assert closed_meanwhile.seen == ["close", "list_queues", "close"]


@pytest.mark.parametrize("key", ["unique_key", "dedupe_key", "group"])
@pytest.mark.parametrize("method", ["compare_and_set_keys", "reserve_keys", "append", "confirm_keys"])
def test_a_send_beside_the_close_says_closed_only_if_nothing_of_it_is_stored(
    closed_meanwhile: ClosedMeanwhile, queue: shardq.Queue, method: str, key: str
) -> None:
    assert closed_meanwhile.client is not None
    producer = closed_meanwhile.client.queue(queue.name).producer()
    closed_meanwhile.method = method
    options: dict[str, Any] = {key: "a"}
    stored = 1
    try:
        producer.send(b"one", **options)
    except shardq.Closed:
        stored = 0
    except shardq.OutcomeUnknown as error:
        queue.producer().send(error.unsent[0])
    assert queue.counts().ready == stored
    assert queue.consumer().receive(10).bodies == [b"one"] * stored


def test_the_threads_of_a_client_end_when_it_is_closed(url: str, clock: ManualClock) -> None:
    before = set(threading.enumerate())
    scene = Scene(url, clock)
    claiming = [
        each for each in threading.enumerate() if each not in before and each.name == "shardq-prefetcher"
    ]
    for thread in claiming:
        thread.join(30)
    assert not any(thread.is_alive() for thread in claiming)
    for consumer in (scene.consumer, scene.keeping, scene.prefetching):
        consumer.close()
