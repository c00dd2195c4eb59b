"""Tasks on every store: a result is decided once, waited for from another client, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import pytest

import shardq
from shardq.base.clock import SystemClock
from shardq.storage.opening import open_store
from shardq.tasks import (
    Task,
    TaskCancelled,
    TaskFailed,
    Tasks,
    TaskWorker,
    chain,
    chord,
    current_task,
    plans,
    workflow,
)
from tests.any_store import any_url
from tests.dying_store import Died
from tests.processes import eventually
from tests.tasks.dying import Dying

__all__ = ["any_url"]


@pytest.fixture
def name(any_url: str) -> Iterator[str]:
    name = f"tasks{os.urandom(4).hex()}"
    yield name
    with shardq.connect(any_url) as client:
        for queue in (name, f"{name}.dead"):
            if client.exists(queue):
                client.delete_queue(queue)


def test_tasks_are_sent_run_cancelled_and_waited_for_by_different_clients(any_url: str, name: str) -> None:
    tasks, theirs = Tasks(), Tasks()
    started, go_on = threading.Event(), threading.Event()

    def work(number: int) -> int:
        if number == 9:
            raise shardq.DeadLetter("unlucky")
        if number == 7:
            started.set()
            assert go_on.wait(60)
            assert current_task().read_cancelled()
        return number * number

    async def on_a_loop(number: int) -> str:
        await asyncio.sleep(0)
        current_task().progress(number)
        return str(number)

    for each in (tasks, theirs):
        each.task(queue=name, name="work")(work)
        each.task(queue=name, name="on_a_loop")(on_a_loop)
    with shardq.connect(any_url) as here, shardq.connect(any_url) as there:
        tasks.bind(here)
        squares = tasks.tasks["work"]
        worker = TaskWorker(theirs, there, threads=8)
        results = tasks.send_many(squares.signature(number) for number in range(10))
        late = squares.options(delay=600).send(3)
        text = tasks.tasks["on_a_loop"].send(5)
        running = threading.Thread(target=worker.run)
        running.start()
        try:
            assert started.wait(60)
            assert results[7].cancel()
            assert late.cancel()
            go_on.set()
            assert [results[each].get(timeout=60) for each in range(10) if each not in (7, 9)] == [
                each * each for each in range(10) if each not in (7, 9)
            ]
            assert asyncio.run(_awaited(text)) == "5"
            assert text.progress() == 5
            for result, error in (
                (results[7], TaskCancelled),
                (results[9], TaskFailed),
                (late, TaskCancelled),
            ):
                with pytest.raises(error):
                    result.get(timeout=60)
        finally:
            go_on.set()
            worker.stop()
            running.join(60)
        assert not results[1].cancel()
        assert worker.report.in_flight == 0
        assert here.queue(name).peek() == []
        for result in (results[0], late, text):
            result.forget()
            assert result.state == "missing"


def test_workers_of_two_clients_end_a_workflow_once(any_url: str, name: str) -> None:
    totals: list[list[int]] = []

    def square(number: int) -> int:
        return number * number

    def total(numbers: list[int]) -> int:
        totals.append(numbers)
        return sum(numbers)

    apps = (Tasks(), Tasks())
    for app in apps:
        app.task(queue=name, name="square")(square)
        app.task(queue=name, name="total")(total)
    with shardq.connect(any_url) as here, shardq.connect(any_url) as there:
        workers = [
            TaskWorker(app, client, threads=4) for app, client in zip(apps, (here, there), strict=True)
        ]
        tasks = apps[0].tasks
        with _working(*workers):
            members = [chain(tasks["square"].signature(each), tasks["square"].then()) for each in range(8)]
            result = chord(members, tasks["total"].then()).send()
            assert result.get(timeout=120) == sum(each**4 for each in range(8))
        TaskWorker(
            apps[0], here, idle_exit=0
        ).run()  # the message may be there again, for one who was last too
        assert totals == [[each**4 for each in range(8)]]
        assert here.queue(name).peek() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_as_many_groups_run_at_a_time_as_there_are_threads_however_many_tasks_each_has(
    any_url: str, name: str, workers: int
) -> None:
    running, four_run, order = list[str](), threading.Event(), list[tuple[str, int]]()
    app = Tasks()

    @app.task(queue=name, keep_result=0, group=lambda customer, number: customer)
    def deliver(customer: str, number: int) -> None:
        running.append(customer)
        if len(running) == 4:
            four_run.set()
        assert four_run.wait(60)
        order.append((customer, number))

    with shardq.connect(any_url) as client, app.bound(client):
        deliver.send_many(deliver.signature(f"c{each % 8}", each // 8) for each in range(8 * 22))
        with _working(*(TaskWorker(app, client, threads=4 // workers) for _ in range(workers))):
            assert four_run.wait(60)
            assert eventually(lambda: len(order) == 8 * 22)
        assert len(set(running[:4])) == 4
        for each in range(8):
            assert [number for customer, number in order if customer == f"c{each}"] == list(range(22))


def test_a_large_group_whose_workers_die_again_and_again_ends_once(
    any_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    totals: list[list[int]] = []

    def square(number: int) -> int:
        return number * number

    def total(numbers: list[int]) -> int:
        totals.append(numbers)
        return sum(numbers)

    def app_of(client: shardq.Client) -> Tasks:
        app = Tasks()
        app.bind(client)
        app.task(queue=name, name="square")(square)
        app.task(queue=name, name="total")(total)
        return app

    with shardq.connect(any_url) as client:
        queue = client.create_queue(name, visibility_timeout=1, max_deliveries=None)
        tasks = app_of(client)
        parts = [tasks.tasks["square"].signature(each) for each in range(5)]
        result = chord(parts, tasks.tasks["total"].then()).send()
        for step, after in ((1, True), (4, False), (8, True), (12, False), (15, True)):
            store = Dying(open_store(any_url, SystemClock()))
            store.calls_left, store.after = step, after
            with shardq.Client(store, retry_seconds=0) as deadly, suppress(Died):
                TaskWorker(app_of(deadly), deadly, threads=0, idle_exit=1.2).run()
        with _working(
            TaskWorker(tasks, client, threads=2)
        ):  # a step that found its store away comes 5 s later
            assert result.get(timeout=120) == 30
            until = time.monotonic() + 60
            while queue.peek() and time.monotonic() < until:
                time.sleep(0.05)
        assert set(map(tuple, totals)) == {(0, 1, 4, 9, 16)}
        assert queue.peek() == []
        count = len(totals)
        assert not result.retry()
        assert tasks.workflow(result.id).get(timeout=0) == 30
        assert len(totals) == count
        listed = {each.id: each.state for each in tasks.workflows(name="square", state="done")}
        assert listed[result.id] == "done"


@contextmanager
def _working(*workers: TaskWorker) -> Iterator[None]:
    """Run workers in threads while the block runs."""
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        for thread in threads:
            thread.join(60)


async def _awaited(result: object) -> object:
    return await result  # type: ignore[misc]


WRONG: dict[str, Callable[[Task[[int], int, int]], object]] = {
    "delay": lambda add: add.options(delay=-1).send(1),
    "unique key": lambda add: add.options(unique_key="x" * 999).send(1),
    "two keys": lambda add: add.options(unique_key="x", dedupe_key="x").send(1),
    "interval": lambda add: add.signature(1).schedule("s", every=-1),
    "time": lambda add: add.signature(1).schedule("s", at=datetime(2000, 1, 1, tzinfo=UTC)),
    "priority of a schedule": lambda add: add.options(priority=99).signature(1).schedule("s", every=60),
}


@pytest.mark.parametrize("send", WRONG.values(), ids=WRONG)
def test_a_call_that_is_refused_creates_no_queue(
    any_url: str, name: str, send: Callable[[Task[[int], int, int]], object]
) -> None:
    with shardq.connect(any_url) as client:
        tasks = Tasks()
        tasks.bind(client)

        @tasks.task(queue=name)
        def add(number: int) -> int:
            return number

        with pytest.raises((shardq.InvalidMessage, shardq.InvalidSetting)):
            send(add)
        assert not client.queues(name)
