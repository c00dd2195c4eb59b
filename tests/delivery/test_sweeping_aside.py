"""Nobody who receives waits for a sweep where the store takes several requests at a time, nor for long elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

import shardq
from shardq.core.receiving import several_queues
from shardq.storage.opening import open_store
from shardq.storage.requests import Sweep
from shardq.storage.store import Capabilities
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import FaultPlan, FaultyStore, ManualClock
from shardq.testing.seam import drive_timers

PATIENCE = 30.0  # seconds
MINUTE = 61


class SlowSweeps(FaultyStore):
    """A store on a network, whose sweeps take until they are let go."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        super().__init__(open_store(url, clock), FaultPlan(()))
        self.begun, self.let_go = threading.Semaphore(0), threading.Event()
        self.swept: list[str] = []

    @property
    def capabilities(self) -> Capabilities:
        return msgspec.structs.replace(super().capabilities, requests_at_once=8)

    def sweep(self, request: Sweep) -> int:
        self.begun.release()
        assert self.let_go.wait(PATIENCE)
        removed = super().sweep(request)
        self.swept.append(request.queue)
        return removed


@pytest.fixture
def store(url: str, clock: ManualClock) -> SlowSweeps:
    return SlowSweeps(url, clock)


def send(client: shardq.Client, *names: str) -> None:
    for name in names:
        client.create_queue(name, exist_ok=True, shards=1).producer().send(name.encode())


def test_messages_are_received_while_a_sweep_is_under_way(store: SlowSweeps, clock: ManualClock) -> None:
    with shardq.Client(store, retry_seconds=0) as client:
        send(client, "a")
        with client.queue("a").consumer() as consumer:
            assert len(consumer.receive(1, wait=0)) == 1
            assert store.begun.acquire(timeout=PATIENCE)
            clock.advance(MINUTE)
            send(client, "a")
            assert len(consumer.receive(1, wait=0)) == 1
            assert not store.begun.acquire(blocking=False)  # one sweep at a time
            store.let_go.set()
    assert store.swept == ["a"]  # the end of a consumer waits for it


def test_few_queues_are_swept_together_once_a_minute(store: SlowSweeps, clock: ManualClock) -> None:
    store.let_go.set()
    names = ["a", "b", "c"]
    with shardq.Client(store, retry_seconds=0) as client:
        send(client, *names)
        for sweeps in (1, 2):
            with client.consumer(names) as consumer:
                for _ in range(4):
                    consumer.receive(1, wait=0)
            assert sorted(store.swept) == sorted(names * sweeps)
            clock.advance(MINUTE)


def test_a_queue_that_was_deleted_meanwhile_keeps_no_other_from_being_swept(
    store: SlowSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[str] = []

    def sweep(request: Sweep) -> int:
        swept.append(request.queue)
        if request.queue == "a":
            raise shardq.QueueNotFound("it is gone")
        return 0

    monkeypatch.setattr(store, "sweep", sweep)
    with shardq.Client(store, retry_seconds=0) as client:
        send(client, "a", "b")
        with client.consumer(["a", "b"]) as consumer:
            consumer.receive(1, wait=0)
    assert swept == ["a", "b"]


def test_a_client_that_is_closed_meanwhile_tells_of_no_failed_sweep(
    store: SlowSweeps, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_queues, "CLOSING_SECONDS", 0.0)
    client = shardq.Client(store, retry_seconds=0)
    send(client, "a")
    consumer = client.queue("a").consumer()
    consumer.receive(1, wait=0)
    assert store.begun.acquire(timeout=PATIENCE)
    client.close()
    store.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "shardq-sweep":
            thread.join(PATIENCE)
    assert "not swept" not in caplog.text


def test_a_sweep_that_ends_after_its_client_leaves_no_connections(
    store: SlowSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several_queues, "CLOSING_SECONDS", 0.0)
    told: list[str] = []
    close, sweep = store.close, store.sweep

    def noting(request: Sweep) -> int:
        removed = sweep(request)
        told.append("swept")
        return removed

    monkeypatch.setattr(store, "sweep", noting)
    monkeypatch.setattr(store, "close", lambda: (told.append("closed"), close()))
    client = shardq.Client(store, retry_seconds=0)
    send(client, "a")
    client.queue("a").consumer().receive(1, wait=0)
    assert store.begun.acquire(timeout=PATIENCE)
    client.close()
    store.let_go.set()
    for thread in threading.enumerate():
        if thread.name == "shardq-sweep":
            thread.join(PATIENCE)
    assert told == ["closed", "swept", "closed"]


def test_messages_are_received_where_no_thread_can_be_started(
    store: SlowSweeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with shardq.Client(store, retry_seconds=0) as client:
        send(client, "a")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with client.queue("a").consumer() as consumer:
                assert [message.body for message in consumer.receive(1, wait=0)] == [b"a"]


def test_a_file_is_swept_by_whoever_receives(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    inner = open_store(url, clock)

    def noting(sweep: Callable[[Sweep], int]) -> Callable[[Sweep], int]:
        def note(request: Sweep) -> int:
            threads.append(threading.current_thread().name)
            return sweep(request)

        return note

    monkeypatch.setattr(inner, "sweep", noting(inner.sweep))
    with shardq.Client(inner) as client:
        send(client, "a")
        with client.queue("a").consumer() as consumer:
            consumer.receive(1, wait=0)
    assert threads == [threading.current_thread().name]


class Backlog(WrappedStore):
    """A file in which much of queue ``a`` is to be swept, and what the clock of its sweeps shows."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        super().__init__(open_store(url, clock))
        self.left, self.steps, self.seconds = 20, 0, 0.0

    def sweep(self, request: Sweep) -> int:
        if request.queue != "a":
            return super().sweep(request)
        self.steps += 1
        self.seconds += 0.02
        found, self.left = min(self.left, 1), max(self.left - 1, 0)
        return found


@pytest.mark.parametrize("queues", [1, 3, 7])
def test_of_a_backlog_in_a_file_each_receive_sweeps_a_part(url: str, clock: ManualClock, queues: int) -> None:
    store, names = Backlog(url, clock), "abcdefg"[:queues]
    with shardq.Client(store, retry_seconds=0) as client:
        send(client, *names)
        send(client, *"a" * 10)
        with client.consumer(list(names)) as consumer:
            drive_timers(consumer, timer=lambda: store.seconds)
            swept = [0]
            for _ in range(10):
                assert len(consumer.receive(1, wait=0)) == 1
                swept.append(store.steps - sum(swept))
    assert swept == [0, 3, 3, 3, 3, 3, 3, 3, 0, 0, 0]  # the last step finds nothing


def test_a_sweep_by_hand_goes_on_to_the_end(url: str, clock: ManualClock) -> None:
    store = Backlog(url, clock)
    with shardq.Client(store, retry_seconds=0) as client:
        send(client, "a")
        assert client.queue("a").sweep() == 20
