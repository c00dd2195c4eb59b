"""A worker of plain handlers runs several at a time, and keeps what it promises about acks, groups and its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

import pytest

import shardq
import shardq.aio
from shardq import Batch, Message, Queue
from shardq.base.clock import SystemClock, to_datetime
from shardq.core.hooks import HookCall
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.tasks import Tasks, TaskWorker
from shardq.testing import ManualClock
from shardq.worker import Worker, WorkerOptions

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 60.0


class Counting(WrappedStore):
    """A store that counts the requests of each kind."""

    asked: Counter[str]

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.__dict__.setdefault("asked", Counter())[method] += 1
        return do(*args, **kwargs)


@pytest.mark.parametrize("options", [{}, {"by_batch": True, "batch": 5}])
def test_as_many_handlers_run_at_a_time_as_there_are_threads(queue: Queue, options: dict[str, Any]) -> None:
    together = threading.Barrier(4, timeout=PATIENCE)

    def handler(_: Message | Batch) -> None:
        together.wait()

    queue.producer().send_many([b"%d" % number for number in range(20)])
    report = Worker(queue, handler, threads=4, idle_exit=0, **options).run()
    assert (report.worked, report.in_flight, report.failed) == (20, 0, 0)
    assert queue.counts().oldest is None


def test_a_slow_message_holds_up_no_other_one(queue: Queue) -> None:
    others_done = threading.Event()
    worked: list[bytes] = []

    def handler(message: Message) -> None:
        if message.body == b"slow":
            assert others_done.wait(PATIENCE)
        worked.append(message.raw)
        if len(worked) == 50:
            others_done.set()

    queue.producer().send_many([b"slow", *(b"%d" % number for number in range(50))])
    Worker(queue, handler, threads=2, idle_exit=0).run()
    assert (worked[-1], len(worked)) == (b"slow", 51)


def test_messages_that_have_ended_are_acked_together(url: str, queue: Queue) -> None:
    queue.producer().send_many([b"%d" % number for number in range(500)])
    store = Counting(open_store(url, SystemClock()))
    with shardq.Client(store) as client:
        report = Worker(client.queue("jobs"), lambda _: None, threads=8, idle_exit=0).run()
    assert report.worked == 500
    assert store.asked["acknowledge"] + store.asked["settle"] < 250


class AcksFail(Counting):
    """A store that can be read, but to which no ack comes through at first."""

    away = True

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.away and method == "acknowledge":
            super().call("failed", lambda: None)
            raise shardq.StoreUnavailable("it is away")
        return super().call(method, do, *args, **kwargs)

    def wait_for(self, method: str, more: int) -> None:
        """Wait until this number of further requests of a kind were begun."""
        enough, until = self.asked[method] + more, time.monotonic() + PATIENCE
        while self.asked[method] < enough and time.monotonic() < until:
            time.sleep(0.01)


def test_a_message_whose_ack_is_repeated_keeps_its_lease_while_others_are_received(url: str) -> None:
    store, arrived = AcksFail(open_store(url, clock := ManualClock())), SimpleQueue[bytes]()
    ends: list[datetime] = []

    def handler(message: Message) -> None:
        if message.body != b"slow":
            arrived.put(message.body)
            return
        store.wait_for("failed", 2)
        for body in (b"third", b"fourth"):
            queue.producer().send(body)
            while arrived.get(timeout=PATIENCE) != body:
                pass
        clock.advance(0.6)
        store.wait_for("extend", 2)
        ends.extend(each.due for each in queue.peek(10) if each.body == b"quick")
        store.away = False
        worker.stop()  # which ends the pause before the next ack

    with shardq.Client(store, retry_seconds=0) as client:
        queue = client.create_queue("jobs", visibility_timeout=0.9, shards=1)
        queue.producer().send_many([b"slow", b"quick"])
        worker = Worker(queue, handler, threads=4, idle_exit=0)
        report = worker.run()
    assert (ends, report.worked, report.lease_lost) == ([to_datetime(clock.now() + 900_000)], 4, 0)


def test_each_message_has_its_own_outcome_and_result(client: shardq.Client) -> None:
    queue = client.create_queue(
        "sums", max_deliveries=2, retry_delay=0, keep_results=True, history_retention=600
    )
    ids = queue.producer().send_many([b"%d" % number for number in range(40)])

    def handler(message: Message) -> bytes:
        number = int(message.body)
        if number % 10 == 0:
            raise ValueError(f"not {number}")
        if number % 10 == 1 and message.deliveries == 1:
            raise shardq.Retry(0)
        return b"%d" % (2 * number)

    report = Worker(queue, handler, threads=4, idle_exit=0.5).run()
    dead = client.queue("sums.dead").peek(100)
    assert {each.body: each.headers["shardq-reason"] for each in dead} == {
        b"%d" % number: f"ValueError: not {number}" for number in range(0, 40, 10)
    }
    assert (report.worked, report.dead_lettered, report.lease_lost) == (36, 4, 0)
    found = queue.get(ids[7])
    assert found is not None and found.result == b"14"
    assert queue.counts().oldest is None


def test_groups_run_beside_each_other_and_each_in_its_order(queue: Queue) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)
    worked: list[tuple[str | None, bytes]] = []

    def handler(message: Message) -> None:
        if message.body == b"0":
            together.wait()
        worked.append((message.group, message.raw))

    with queue.producer() as producer:
        for number in range(30):
            for group in "abc":
                producer.send(b"%d" % number, group=group)
    Worker(queue, handler, threads=3, idle_exit=0.2).run()
    for group in "abc":
        assert [body for name, body in worked if name == group] == [b"%d" % number for number in range(30)]


def test_a_stop_lets_those_at_hand_end_and_gives_back_the_others(queue: Queue) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def handler(_: Message) -> None:
        begun.release()
        assert go_on.wait(PATIENCE)

    queue.producer().send_many([b"%d" % number for number in range(30)])
    worker = Worker(queue, handler, threads=3)
    running = threading.Thread(target=worker.run)
    running.start()
    for _ in range(3):
        assert begun.acquire(timeout=PATIENCE)
    worker.stop()
    go_on.set()
    running.join(PATIENCE)
    assert worker.report.worked == 3
    assert (queue.counts().ready, queue.counts().in_flight) == (27, 0)
    assert {message.deliveries for message in queue.peek(100)} == {0}


def test_an_interrupt_ends_the_worker_after_those_at_hand(queue: Queue) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def handler(message: Message) -> None:
        if message.body == b"0":
            for _ in range(2):
                assert begun.acquire(timeout=PATIENCE)
            go_on.set()
            raise KeyboardInterrupt
        begun.release()
        assert go_on.wait(PATIENCE)

    queue.producer().send_many([b"%d" % number for number in range(30)])
    worker = Worker(queue, handler, threads=3)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    counts = queue.counts()
    assert (counts.ready + worker.report.worked, counts.in_flight) == (30, 0)


def test_a_handler_that_returns_what_has_not_run_ends_the_worker(queue: Queue) -> None:
    async def run_later() -> None: ...

    queue.producer().send_many([b"one", b"two"])
    with pytest.raises(shardq.InvalidSetting):
        Worker(queue, lambda _: run_later(), threads=2, idle_exit=0).run()
    assert queue.counts().ready == 2


def test_a_semaphore_bounds_the_threads_of_all_workers(client: shardq.Client, queue: Queue) -> None:
    client.semaphore("smtp", permits=2)
    running, most, lock = 0, 0, threading.Lock()

    def handler(_: Message) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.005)
        with lock:
            running -= 1

    queue.producer().send_many([b"%d" % number for number in range(40)])
    report = Worker(queue, handler, threads=6, semaphore="smtp", idle_exit=0).run()
    assert (report.worked, most) == (40, 2)


def test_wrong_options_are_refused_with_the_remedy(queue: Queue) -> None:
    for wrong in ({"threads": 0}, {"threads": 1_001}, {"threads": 2.5}):
        with pytest.raises(shardq.InvalidSetting, match="threads"):
            WorkerOptions(**wrong)
    with pytest.raises(shardq.InvalidSetting, match="leave prefetch out"):
        Worker(queue, print, threads=2, prefetch=10)


def test_async_handlers_run_in_threads_too(queue: Queue) -> None:
    together = threading.Barrier(3, timeout=PATIENCE)

    async def handler(message: shardq.aio.Message) -> bytes:
        await asyncio.to_thread(together.wait)
        return message.raw

    queue.producer().send_many([b"%d" % number for number in range(9)])
    report = Worker(queue, handler, threads=3, idle_exit=0).run()
    assert (report.worked, queue.counts().oldest) == (9, None)


class FailingAcks(shardq.Hooks):
    """Hooks of a program that fail at the acks of some queues."""

    def __init__(
        self,
        *queues: str,
        error: type[BaseException] = OSError,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._queues, self._error, self._before = queues, error, before

    @contextmanager
    def around(self, call: HookCall) -> Iterator[None]:
        if call.operation == "ack":
            self._before()
            if call.queue in self._queues:
                raise self._error("no disk")
        yield


def test_an_error_at_the_ack_of_a_batch_leaves_the_others_of_that_time_settled(url: str) -> None:
    def wait_for_all() -> None:  # the first ack, so that the others are to be settled together
        if begun.is_set():
            return
        begun.set()
        until = time.monotonic() + PATIENCE
        while worker.report.settling < 3 and time.monotonic() < until:
            time.sleep(0.01)

    def handler(message: Message) -> None:
        if message.queue != "first":
            assert begun.wait(PATIENCE)

    begun = threading.Event()
    hooks = FailingAcks("second", before=wait_for_all)
    with shardq.connect(url, hooks=hooks) as client:
        queues = [client.create_queue(name) for name in ("first", "second", "third")]
        for queue in queues:
            queue.producer().send(b"tea")
        worker = Worker(queues, handler, threads=3)
        with pytest.raises(OSError, match="no disk"):
            worker.run()
        assert [queue.counts().in_flight for queue in queues] == [0, 1, 0]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("of_tasks", [False, True])
def test_an_error_at_the_acks_of_a_batch_leaves_its_failures_settled(
    url: str, error: type[BaseException], of_tasks: bool
) -> None:
    tasks = Tasks()

    @tasks.task(queue="jobs")
    def work(body: bytes) -> None:
        if body == b"fails":
            raise ValueError("no tea")

    with shardq.connect(url, hooks=FailingAcks("jobs", error=error)) as client, tasks.bound(client):
        queue = client.create_queue("jobs", retry_delay=600)
        worker: Worker | TaskWorker
        if of_tasks:
            work.send_many(work.signature(body) for body in (b"works", b"fails"))
            worker = TaskWorker(tasks, client, threads=0)
        else:
            queue.producer().send_many([b"works", b"fails"])
            worker = Worker(queue, lambda message: work(message.body))
        with pytest.raises(error, match="no disk"):
            worker.run()
        counts = queue.counts()
        assert (counts.delayed, counts.in_flight, counts.ready) == (1, 1, 0)


@pytest.mark.parametrize("most", [0, 2])
def test_a_worker_uses_the_threads_that_can_be_started(
    monkeypatch: pytest.MonkeyPatch, queue: Queue, most: int
) -> None:
    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("shardq-worker_"):
            if len(started) == most:
                raise RuntimeError("can't start new thread")
            started.append(thread)
        start_thread(thread)

    started, start_thread = list[threading.Thread](), threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    queue.producer().send_many([b"%d" % number for number in range(20)])
    assert Worker(queue, lambda _: None, threads=4, idle_exit=0).run().worked == 20
    assert len(started) == most
    assert not any(thread.is_alive() for thread in started)


def test_a_worker_whose_threads_cannot_be_started_leaves_the_consumers(
    monkeypatch: pytest.MonkeyPatch, queue: Queue
) -> None:
    def start(thread: threading.Thread) -> None:
        if thread.name == "shardq-settling":
            raise RuntimeError("can't start new thread")
        start_thread(thread)

    start_thread = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="new thread"):
        Worker(queue, lambda _: None, threads=2, idle_exit=0).run()
    assert not queue.consumers()
