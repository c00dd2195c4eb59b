"""Steps and tasks whose queue is full, that are cancelled from within, or that wait beside one that has failed."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, NoReturn

import pytest

import shardq
from shardq.client.queue_internals import stored_in
from shardq.tasks import (
    ResultMissing,
    TaskFailed,
    Tasks,
    TaskWorker,
    calling,
    chain,
    chord,
    current_task,
    group,
)
from shardq.tasks.views import view_of_message
from shardq.testing import ManualClock


def test_a_group_that_is_larger_than_its_queue_may_be_is_sent_bit_by_bit(
    client: shardq.Client, tasks: Tasks, clock: ManualClock
) -> None:
    client.create_queue("small", max_messages=5, shards=1, time_shards=1)
    ran: list[int] = []

    @tasks.task(queue="small")
    def one(number: int) -> int:
        ran.append(number)
        return number

    @tasks.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = chord([one.signature(number) for number in range(20)], total.then()).send()
    until = time.monotonic() + 30  # on a busy machine a queue is counted again only after a while
    while result.state != "done" and time.monotonic() < until:
        tasks.drain()
        clock.advance(6)
    assert result.get(timeout=0) == sum(range(20))
    assert sorted(ran) == list(range(20))


def test_steps_of_a_group_run_in_the_order_of_the_workflow(tasks: Tasks) -> None:
    ran: list[int] = []

    @tasks.task(group="customer-42")
    def one(number: int) -> None:
        ran.append(number)

    one.map(range(8)).send()
    tasks.drain()
    assert ran == list(range(8))


def test_a_task_in_which_something_was_cancelled_by_others_has_failed_and_is_tried_again(
    client: shardq.Client, tasks: Tasks, clock: ManualClock
) -> None:
    tries: list[int] = []

    @tasks.task(retry=3)
    async def fetch() -> None:
        tries.append(1)
        request = asyncio.ensure_future(asyncio.sleep(10))
        asyncio.get_running_loop().call_soon(request.cancel)
        await request

    @tasks.task(retry=3)
    def fetch_plainly() -> None:
        asyncio.run(fetch())

    for task in (fetch, fetch_plainly, fetch_plainly.options(timeout=60)):
        tries.clear()
        result = task.send()
        for _ in range(4):
            tasks.drain()
            clock.advance(400)
        assert (len(tries), result.state) == (3, "failed")
        with pytest.raises(TaskFailed, match="something that the task awaited was cancelled"):
            result.get(timeout=0)
    assert client.queue("tasks.dead").counts().ready == 3


def test_who_waits_for_a_workflow_is_told_at_once_that_a_part_has_failed(tasks: Tasks) -> None:
    @tasks.task(retry=1)
    def bad() -> None:
        raise ValueError("broken")

    @tasks.task
    def good() -> int:
        return 1

    @tasks.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    result = group(good.options(delay=600).signature(), bad.signature()).send()
    callback = chord([bad.signature(), good.options(delay=600).signature()], total.then()).send()
    tasks.drain()

    async def wait() -> None:
        await asyncio.wait_for(result, 60)

    with pytest.raises(TaskFailed, match="broken"):
        result.get(timeout=60)
    with pytest.raises(TaskFailed, match="broken"):
        asyncio.run(wait())
    assert callback.cancel()  # a part that waited
    assert callback.cancel()


def test_a_chord_of_what_is_no_list_is_refused(tasks: Tasks) -> None:
    @tasks.task
    def one() -> int:
        return 1

    with pytest.raises(
        shardq.InvalidSetting, match=r"is not a list of steps: give chord\(\[...\], callback\)"
    ):
        chord(one.signature(), one.signature())  # type: ignore[arg-type]


def test_what_is_no_list_or_no_id_is_refused_where_it_is_given(tasks: Tasks) -> None:
    @tasks.task
    def one(number: int) -> int:
        return number

    wrong: list[Any] = [None, 7]
    for each in wrong:
        with pytest.raises(shardq.InvalidSetting, match="is not a list of values"):
            one.map(each)
    for each in [*wrong, "nothing"]:
        with pytest.raises(shardq.InvalidReceipt, match="is not a message id"):
            one.result(each)


def test_the_remedy_for_a_step_that_no_worker_knows_is_to_retry_its_workflow(
    client: shardq.Client, tasks: Tasks
) -> None:
    @tasks.task(queue="tasks")
    def new(number: int) -> int:
        return number

    older = Tasks()
    older.bind(client)
    result, alone = chain(new.signature(1), new.then()).send(), new.send(2)
    older.drain(queues=["tasks"])
    with pytest.raises(TaskFailed, match=r"has no task 'new': .* then retry its workflow"):
        result.get(timeout=0)
    with pytest.raises(TaskFailed, match=r"has no task 'new': .* then redrive"):
        alone.get(timeout=0)
    assert result.retry()
    tasks.drain()
    assert result.get(timeout=0) == 1


def test_a_task_that_blocks_its_group_has_failed_and_one_without_a_result_is_missing(
    client: shardq.Client, tasks: Tasks, clock: ManualClock
) -> None:
    queue = client.create_queue("ordered", max_deliveries=2, on_dead_letter="block")
    broken = [True]

    @tasks.task(queue="ordered", group="failing", retry=1)
    def fail() -> None:
        raise ValueError("no")

    @tasks.task(queue="ordered", group="deadly")
    def die(number: int) -> int:
        assert not broken
        return number

    @tasks.task
    def begin() -> int:
        return 2

    failing = fail.send()
    tasks.drain()
    deadly, flow = die.send(1), chain(begin.signature(), die.options(group="other").then()).send()
    tasks.drain(queues=["tasks"])
    with queue.consumer(visibility_timeout=1) as consumer:  # a worker that dies of them each time
        for _ in range(3):
            consumer.receive(10)
            clock.advance(2)
    assert {view_of_message(each, "ordered", ()).state for each in stored_in(queue, 10)} == {"failed"}
    assert (failing.state, deadly.state, flow.state) == ("failed", "missing", "missing")
    with pytest.raises(ResultMissing, match="blocks its group"):
        deadly.get(timeout=60)
    assert not deadly.cancel()
    broken.clear()
    assert flow.retry()
    for blocking in queue.peek(blocked=True):
        queue.remove(blocking.id)
    tasks.drain()
    assert flow.get(timeout=0) == 2


def test_a_task_goes_on_while_the_store_is_away(
    client: shardq.Client, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tasks.task(retry=1)
    def work() -> str:
        current_task().progress("half", at_once=True)
        current_task().check()
        with pytest.raises(shardq.StoreUnavailable):
            current_task().read_cancelled()
        return "done"

    def fail(*_arguments: object, **_options: object) -> NoReturn:
        raise shardq.StoreUnavailable("it is away")

    result = work.send()
    monkeypatch.setattr(calling, "CANCEL_CHECK_SECONDS", 0.0)
    for asked in ("outcomes", "write_progress"):
        monkeypatch.setattr(tasks.task_client.results, asked, fail)
    assert TaskWorker(tasks, client, idle_exit=0).run().worked == 1
    monkeypatch.undo()
    assert (result.get(timeout=0), result.progress()) == ("done", None)


def test_an_async_task_goes_on_while_the_store_is_away(
    client: shardq.Client, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    asked = threading.Event()

    @tasks.task(retry=1)
    async def wait(number: int) -> int:
        ran.append(number)
        await asyncio.to_thread(asked.wait)
        return number

    def look(*_arguments: object, **_options: object) -> NoReturn:
        asked.set()
        raise shardq.StoreUnavailable("it is away")

    result = wait.send(7)
    monkeypatch.setattr("shardq.worker.loop.CANCEL_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(tasks.task_client.results, "outcomes", look)
    assert TaskWorker(tasks, client, idle_exit=0).run().worked == 1
    monkeypatch.undo()
    assert (result.get(timeout=0), ran) == (7, [7])
