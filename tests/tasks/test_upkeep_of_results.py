"""Removing results whose time is over costs no task anything, whatever becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.storage.wrapped_store import WrappedStore
from shardq.tasks import Result, Tasks, TaskWorker, current_task, result_backend
from shardq.tasks.entries import Decided, Entry
from shardq.testing import ManualClock
from shardq.worker import consuming
from tests.tasks.sums import Sums

P = ParamSpec("P")
T = TypeVar("T")


@pytest.mark.parametrize(
    "error",
    [
        shardq.StoreUnavailable("away"),
        shardq.StoreUnavailable("a full disk", retryable=False),
        shardq.OutcomeUnknown("no answer"),
        shardq.LeaseLost("somebody else removed them"),
        shardq.QueueNotFound("deleted"),
    ],
    ids=repr,
)
def test_tasks_that_were_just_received_run_at_their_first_delivery_when_the_upkeep_fails(
    sums: Sums, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, error: shardq.ShardqError
) -> None:
    tried: list[int] = []

    def fail(stopped: Callable[[], bool]) -> int:
        tried.append(1)
        raise error

    monkeypatch.setattr(result_backend, "UPKEEP_SECONDS", 0.0)
    monkeypatch.setattr(sums.tasks.task_client.results, "remove_old", fail)
    deliveries = _noting_deliveries(sums.tasks)
    result = deliveries()
    report = TaskWorker(sums.tasks, client, threads=2, idle_exit=0).run()
    assert result.get(timeout=0) == 1
    assert (report.worked, report.store_faults) == (1, 0)
    assert tried


def test_tasks_do_not_wait_for_an_upkeep_that_takes_long(
    sums: Sums, client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def dawdle(stopped: Callable[[], bool]) -> int:
        begun.set()
        while not stopped():
            time.sleep(0.01)
        ended.set()
        return 0

    monkeypatch.setattr(result_backend, "UPKEEP_SECONDS", 0.0)
    monkeypatch.setattr(sums.tasks.task_client.results, "remove_old", dawdle)
    worker = TaskWorker(sums.tasks, client, threads=2)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        assert begun.wait(60)
        assert sums.add.send(1, 2).get(timeout=60) == 3
        assert not ended.is_set()
    finally:
        worker.stop()
        working.join(60)
    assert ended.is_set()
    assert not working.is_alive()


def test_tasks_run_although_no_thread_can_begin_the_upkeep(
    sums: Sums, client: shardq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[str] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name != "shardq-tasks-upkeep":
            return start(thread)
        refused.append(thread.name)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(result_backend, "UPKEEP_SECONDS", 0.0)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = sums.add.send(1, 2)
    TaskWorker(sums.tasks, client, threads=2, idle_exit=0).run()
    assert result.get(timeout=0) == 3
    assert refused


@pytest.mark.parametrize(("threads", "every"), [(0, 0.0), (2, 0.0), (2, 60.0)])
def test_a_worker_that_is_told_to_stop_removes_no_more_results(
    sums: Sums, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, threads: int, every: float
) -> None:
    told: list[bool] = []

    def remove(stopped: Callable[[], bool]) -> int:
        told.append(stopped())
        working.stop()
        told.append(stopped())
        return 0

    monkeypatch.setattr(result_backend, "UPKEEP_SECONDS", every)
    monkeypatch.setattr(sums.tasks.task_client.results, "remove_old", remove)
    working = TaskWorker(sums.tasks, client, threads=threads, idle_exit=0)
    working.run()
    assert told[:2] == [False, True]
    assert all(told[1:])


class LeftAlone(WrappedStore):
    """A store that is away for who removes old results, and for nobody else."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        super().__init__(open_store(url, clock))
        self.away, self.asked = False, 0
        self.when_asked: Callable[[int], None] = lambda _: None

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if not (self.away and threading.current_thread().name == "shardq-tasks-upkeep"):
            return do(*args, **kwargs)
        self.asked += 1
        self.when_asked(self.asked)
        raise shardq.StoreUnavailable(f"{method}: the store is away")


def test_a_worker_leaves_soon_while_the_store_is_away_for_its_upkeep(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_backend, "UPKEEP_SECONDS", 0.0)
    monkeypatch.setattr(consuming, "LEAVE_SECONDS", -1.0)
    store = LeftAlone(url, clock)
    with shardq.Client(store, retry_seconds=3_600.0) as client:
        sums = Sums(client)
        sums.add.send(1, 2)
        sums.tasks.drain()  # so that there is a queue of results
        working = TaskWorker(sums.tasks, client, threads=2)
        store.when_asked = lambda times: working.stop() if times == 3 else None
        store.away = True
        thread = threading.Thread(target=working.run)
        thread.start()
        thread.join(30)
        left = not thread.is_alive()
        store.away = False
        working.stop()
        thread.join(60)
    assert left
    assert store.asked == 3


def test_progress_can_be_told_while_the_one_before_is_being_removed(
    tasks: Tasks, client: shardq.Client, clock: ManualClock
) -> None:
    held: list[object] = []

    @tasks.task(keep_result=1)
    def work() -> str:
        current_task().progress("begun", at_once=True)
        clock.advance(2)
        held.append(client.queue("_shardq/tasks/results").consumer(visibility_timeout=60).receive(10))
        assert held[0]
        current_task().progress("half", at_once=True)
        return "done"

    result = work.send()
    tasks.drain()
    assert result.get(timeout=0) == "done"


def _noting_deliveries(tasks: Tasks) -> Callable[[], Result[int]]:
    @tasks.task
    def deliveries() -> int:
        return current_task().deliveries

    return deliveries.send


@pytest.mark.parametrize(("size", "count", "most"), [(500_000, 45, 20), (10, 400, 1_000)])
def test_large_results_are_removed_some_at_a_time_and_small_ones_many(
    tasks: Tasks,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    count: int,
    most: int,
) -> None:
    together: list[int] = []
    receive = shardq.Consumer.receive

    def noted(consumer: shardq.Consumer, limit: int = 1, *, wait: float = 0.0) -> shardq.Batch:
        together.append(limit)
        return receive(consumer, limit, wait=wait)

    results = tasks.task_client.results
    results.decide(
        [Decided(f"tasks:0:0:{number:032x}:0", Entry("done", bytes(size)), 60) for number in range(count)]
    )
    clock.advance(61)
    monkeypatch.setattr(shardq.Consumer, "receive", noted)
    assert results.remove_old() == count
    assert max(together) <= most
    assert len(together) < count / 5
