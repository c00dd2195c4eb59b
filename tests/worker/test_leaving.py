"""A worker that is told to stop while its store is away leaves soon, whatever its client repeats."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from shardq import Client, Message, Queue
from shardq.base.clock import SystemClock
from shardq.errors import StoreUnavailable
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.worker import Worker, consuming

P = ParamSpec("P")
T = TypeVar("T")

AN_HOUR = 3600.0  # for which the client repeats: no test lasts so long


class LeavingStore(WrappedStore):
    """A store that can go away. It notes what it is asked since, and tells of it."""

    def __init__(self, url: str) -> None:
        super().__init__(open_store(url, SystemClock()))
        self.away = False
        self.asked: list[str] = []
        self.when_asked: Callable[[str], None] = lambda _: None

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not self.away:
            return do(*args, **kwargs)
        self.asked.append(method)
        self.when_asked(method)
        raise StoreUnavailable(f"{method}: the store is away")


@pytest.fixture
def store(url: str, queue: Queue) -> LeavingStore:
    queue.producer().send_many([b"one", b"two", b"three"])
    return LeavingStore(url)


@pytest.fixture(autouse=True)
def no_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "LEAVE_SECONDS", -1.0)


@pytest.mark.parametrize("prefetch", [0, 10])
def test_what_is_not_settled_in_time_is_not_asked_for_again(
    store: LeavingStore, queue: Queue, prefetch: int
) -> None:
    def handle(_: Message) -> None:
        store.away = True
        stopped.stop()
        store.asked.clear()

    with Client(store, retry_seconds=AN_HOUR) as client:
        stopped = Worker(client.queue("jobs"), handle, batch=2, prefetch=prefetch)
        report = stopped.run()
    assert report.worked == 1
    assert not {"acknowledge", "release", "deregister_consumer"} & set(store.asked)
    assert queue.counts().in_flight >= 2  # nothing is lost: they come back when their leases are over


def test_a_stop_ends_a_step_that_is_being_repeated(store: LeavingStore) -> None:
    def handle(_: Message) -> None:
        store.away = True

    def stop_at_the_third(method: str) -> None:
        if method == "acknowledge" and store.asked.count(method) == 3:
            threading.Thread(target=stopped.stop).start()

    store.when_asked = stop_at_the_third
    with Client(store, retry_seconds=AN_HOUR) as client:
        stopped = Worker(client.queue("jobs"), handle, batch=1)
        stopped.run()
    assert store.asked.count("acknowledge") >= 3
    assert store.asked.count("deregister_consumer") == 0


def test_a_consumer_ends_while_what_claims_ahead_is_being_repeated(store: LeavingStore) -> None:
    repeated = threading.Event()

    def note(_: str) -> None:
        if len(store.asked) == 3:
            repeated.set()

    store.when_asked = note
    with Client(store, retry_seconds=AN_HOUR) as client:
        consumer = client.queue("jobs").consumer(prefetch=10)
        assert consumer.receive(3)
        store.away = True
        assert repeated.wait(60)
        ending = threading.Thread(target=consumer.close, daemon=True)
        ending.start()
        ending.join(60)
        assert not ending.is_alive()
