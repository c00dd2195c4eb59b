"""Handlers that are async functions: as plain ones, and those of a batch at the same time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import shardq
import shardq.aio
from shardq import Queue
from shardq.testing import ManualClock
from shardq.worker import PoolReport, Worker, WorkerPool
from shardq.worker.attempt import Attempt, Ending
from shardq.worker.observed import noted
from tests.function_calls import function_calls
from tests.worker.handlers_for_tests import crash_on_poison

PATIENCE = 20.0


def test_the_messages_of_a_batch_are_worked_at_the_same_time_and_acked(
    queue: Queue, begun_threads: Callable[..., list[threading.Thread]]
) -> None:
    queue.producer().send_many([b"%d" % number for number in range(100)])
    all_here: list[bytes] = []
    loops = set()

    async def handler(message: shardq.aio.Message) -> None:
        loops.add(asyncio.get_running_loop())
        all_here.append(message.body)
        while len(all_here) % 20:
            await asyncio.sleep(0)

    report = Worker(queue, handler, batch=20, idle_exit=0).run()
    assert (report.worked, report.failed, report.in_flight) == (100, 0, 0)
    assert len(set(all_here)) == 100
    assert len(loops) == 1
    assert queue.counts().in_flight == 0
    for thread in begun_threads("shardq-loop", "shardq-aio"):  # which end once they have been told to
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.mark.parametrize("by_batch", [False, True])
def test_with_threads_each_of_them_has_a_call_under_way(queue: Queue, by_batch: Any) -> None:
    queue.producer().send_many([b"%d" % number for number in range(40)])
    queue.producer().send_many([b"%d" % number for number in range(10)], group="g")
    running = most = 0
    grouped: list[bytes] = []

    async def handler(given: shardq.aio.Message | shardq.aio.Batch) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        messages = list(given) if isinstance(given, shardq.aio.Batch) else [given]
        grouped.extend(message.body for message in messages if message.group == "g")
        running -= 1

    report = Worker(queue, handler, by_batch=by_batch, batch=5, threads=4, idle_exit=0).run()
    assert (report.worked, report.in_flight, queue.counts().in_flight) == (50, 0, 0)
    assert 1 < most <= 4
    assert grouped == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("by_batch", [False, True])
def test_a_handler_that_cancels_its_own_task_and_returns_has_worked(queue: Queue, by_batch: Any) -> None:
    queue.producer().send_many([b"x"] * 3)

    async def handler(_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    report = Worker(queue, handler, by_batch=by_batch, idle_exit=0).run()
    assert (report.worked, report.failed) == (3, 0)
    counts = queue.counts()
    assert (counts.ready, counts.delayed, counts.in_flight) == (0, 0, 0)


def test_a_worker_can_run_again(queue: Queue) -> None:
    async def handler(message: shardq.aio.Message) -> None:
        await message.extend(60)

    worker = Worker(queue, handler, idle_exit=0)
    for count in (1, 2):
        queue.producer().send(b"x")
        assert worker.run().worked == count


def test_what_an_async_handler_raises_or_returns_decides_what_becomes_of_its_message(
    client: shardq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    queue = client.create_queue("kept", max_deliveries=3, keep_results=True, history_retention=600)
    ids = queue.producer().send_many(
        [
            b"fails",
            b"exits",
            b"is closed",
            b"is cancelled",
            b"cancels itself",
            b"snoozes",
            b"is given up",
            b"is discarded",
            b"works",
        ]
    )

    async def handler(message: shardq.aio.Message) -> object:
        await asyncio.sleep(0)
        match message.body:
            case b"fails":
                raise ValueError("no money")
            case b"exits":
                raise SystemExit(3)
            case b"is closed":
                raise GeneratorExit
            case b"is cancelled":
                raise asyncio.CancelledError
            case b"cancels itself":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(60)
            case b"snoozes":
                return shardq.Snooze(600)
            case b"is given up":
                raise shardq.DeadLetter("no use")
            case b"is discarded":
                return shardq.Discard("too late")
        return b"done"

    report = Worker(queue, handler, idle_exit=0, retry_delay=600).run()
    assert (report.worked, report.failed, report.snoozed, report.discarded) == (1, 6, 1, 1)
    assert report.dead_lettered == 1
    assert {message.body: message.deliveries for message in queue.peek(10)} == {
        b"fails": 1,
        b"exits": 1,
        b"is closed": 1,
        b"is cancelled": 1,
        b"cancels itself": 1,
        b"snoozes": 0,
    }
    assert queue.get(ids[-1]).result == b"done"
    (failed,) = [each for each in caplog.records if "no money" in each.getMessage()]
    assert failed.levelno == logging.WARNING
    assert failed.exc_info is not None
    trace = failed.exc_info[2]
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "handler"


def test_the_messages_of_a_group_are_worked_in_order_and_wait_for_one_that_failed(queue: Queue) -> None:
    for group in ("a", "b"):
        queue.producer().send_many([b"%d" % number for number in range(10)], group=group)
    seen: dict[str | None, list[bytes]] = {"a": [], "b": []}

    async def handler(message: shardq.aio.Message) -> None:
        await asyncio.sleep(0)
        if message.group == "a" and message.body == b"4":
            raise ValueError
        seen[message.group].append(message.body)

    report = Worker(queue, handler, idle_exit=0, retry_delay=600).run()
    assert seen["a"] == [b"0", b"1", b"2", b"3"]
    assert seen["b"] == [b"%d" % number for number in range(10)]
    assert (report.worked, report.failed) == (14, 1)
    assert queue.counts().in_flight == 0


def test_a_whole_batch_may_be_settled_in_parts(queue: Queue) -> None:
    queue.producer().send_many([b"%d" % number for number in range(10)])

    async def handler(batch: shardq.aio.Batch) -> None:
        await batch.part(batch[:4]).ack()
        await batch.part(batch[4:6]).release(delay=600)
        raise ValueError("the rest")

    report = Worker(queue, handler, by_batch=True, idle_exit=0, retry_delay=600).run()
    assert report.batches == 1
    assert (queue.counts().delayed, queue.counts().in_flight) == (6, 0)
    assert {message.deliveries for message in queue.peek(20)} == {1}


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("options", [{}, {"batch": 2}, {"by_batch": True}])
def test_a_message_at_its_last_delivery_is_held_alone(most: int, options: dict[str, Any]) -> None:
    clock = ManualClock()
    with shardq.connect("memory://", clock=clock) as client:
        queue = client.create_queue("jobs", max_deliveries=most, visibility_timeout=30)
        queue.producer().send_many([b"%d" % number for number in range(5)])
        for _ in range(most - 1):
            queue.consumer().receive(5)
            clock.advance(31)
        held: list[int] = []

        async def handle(_: object) -> None:
            held.append(sum(each.deliveries == most for each in queue.peek(10) if each.owner))

        report = Worker(queue, handle, idle_exit=0, **options).run()
        assert (held, report.worked, report.returned) == ([1] * 5, 5, 0)


def test_a_stop_lets_what_has_begun_end_and_begins_nothing(client: shardq.Client, queue: Queue) -> None:
    client.semaphore("two", permits=2)
    queue.producer().send_many([b"x"] * 10)
    begun = 0

    async def handler(message: shardq.aio.Message) -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            worker.stop()
        await asyncio.sleep(0.01)

    worker = Worker(queue, handler, semaphore="two", idle_exit=0)
    report = worker.run()
    assert (report.worked, report.returned) == (begun, 10 - begun)
    assert begun < 10
    assert {message.deliveries for message in queue.peek(10)} == {0}
    assert client.semaphore("two").state().held == 0


def test_a_permit_is_held_for_each_call(client: shardq.Client, queue: Queue) -> None:
    client.semaphore("three", permits=3)
    queue.producer().send_many([b"x"] * 20)
    running = most = 0

    async def handler(message: shardq.aio.Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 3:  # the others come
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        running -= 1

    assert Worker(queue, handler, semaphore="three", idle_exit=0).run().worked == 20
    assert most == 3


@pytest.mark.parametrize("by_batch", [False, True])
def test_ctrl_c_cancels_handlers_and_releases_their_messages(queue: Queue, by_batch: Any) -> None:
    queue.producer().send_many([b"ends"] + [b"x"] * 4, group="g" if by_batch else None)
    cancelled, interrupted = [], []

    async def handler(given: shardq.aio.Message | shardq.aio.Batch) -> None:
        if isinstance(given, shardq.aio.Message) and given.body == b"ends":
            return
        try:
            await asyncio.sleep(0.05)
            if not interrupted:
                interrupted.append(True)
                os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            cancelled.append(given)
            raise

    worker = Worker(queue, handler, by_batch=by_batch, batch=5)
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    assert len(cancelled) == (1 if by_batch else 4)
    counts = queue.counts()
    assert (counts.ready, counts.in_flight) == (5 if by_batch else 4, 0)


def test_a_message_whose_handler_has_returned_is_acked_after_ctrl_c(url: str, queue: Queue) -> None:
    queue.producer().send_many([b"first", b"second", b"third"])
    handled: list[bytes] = []
    cancelled = threading.Event()

    class Slow(shardq.Observer):
        def handled(self, queue: str, outcomes: Any, seconds: Any) -> None:
            assert cancelled.wait(PATIENCE)  # the next message waits for this one

    async def handler(message: shardq.aio.Message) -> None:
        if message.body != b"third":
            handled.append(message.body)
            return
        try:
            while len(handled) < 2:
                await asyncio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(3_600)
        finally:
            cancelled.set()

    with shardq.connect(url, observer=Slow()) as client:
        worker = Worker(client.queue("jobs"), handler, batch=3)
        with pytest.raises(KeyboardInterrupt):
            worker.run()
    assert (worker.report.worked, worker.report.failed) == (2, 0)
    assert [message.body for message in queue.peek(10)] == [b"third"]


@pytest.mark.parametrize(
    "interrupt",
    [
        lambda: os.kill(os.getpid(), signal.SIGINT),
        # As when a signal arrives just before the main thread begins to wait: it ends no system call there.
        lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT),
    ],
    ids=["", "before a wait"],
)
def test_ctrl_c_releases_the_permits_of_cancelled_handlers(
    client: shardq.Client, queue: Queue, interrupt: Callable[[], None]
) -> None:
    client.semaphore("two", permits=2)
    queue.producer().send_many([b"x"] * 4)
    running = []

    async def handler(message: shardq.aio.Message) -> None:
        running.append(message)
        if len(running) == 2:
            interrupt()
        await asyncio.sleep(3_600)

    with pytest.raises(KeyboardInterrupt):
        Worker(queue, handler, semaphore="two").run()
    assert client.semaphore("two").state().held == 0
    assert (queue.counts().ready, queue.counts().in_flight) == (4, 0)


def test_ctrl_c_ends_a_worker_that_waits_for_a_permit(client: shardq.Client, queue: Queue) -> None:
    queue.producer().send_many([b"x"] * 4)
    permit = client.semaphore("one", permits=1).acquire()
    ended = threading.Event()
    was_released = []

    def interrupt() -> None:
        while not worker.report.permit_waits:
            ended.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        was_released.append(not ended.wait(PATIENCE))
        permit.release()

    async def handler(message: shardq.aio.Message) -> None: ...

    worker = Worker(queue, handler, semaphore="one")
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        worker.run()
    ended.set()
    interrupting.join()
    assert was_released == [False]
    assert {message.deliveries for message in queue.peek(10)} == {0}


def test_more_calls_may_wait_for_permits_than_there_are_threads_for_requests(
    client: shardq.Client, queue: Queue
) -> None:
    client.semaphore("ten", permits=10)
    queue.producer().send_many([b"%d" % number for number in range(150)])
    running = 0

    async def handler(message: shardq.aio.Message) -> None:
        nonlocal running
        running += 1
        while running < 10:
            await asyncio.sleep(0.001)

    worker = Worker(queue, handler, threads=100, semaphore="ten", idle_exit=0)
    giving_up = threading.Timer(PATIENCE, worker.stop)
    giving_up.start()
    report = worker.run()
    giving_up.cancel()
    assert (report.worked, client.semaphore("ten").state().held) == (150, 0)


def test_notifying_an_observer_costs_the_same_however_many_messages_of_the_batch_have_failed(
    queue: Queue,
) -> None:
    queue.producer().send(b"x")
    attempt = Attempt(queue.consumer().receive())

    def notify() -> None:
        with noted(attempt, shardq.Observer(), 0.1):
            pass

    costs = []
    for failures in (1, 1_000):
        attempt.endings = [Ending(attempt.batch[0], shardq.Retry(), "no tea")] * failures
        costs.append(function_calls(notify))
    assert costs[0] == costs[1]


@pytest.mark.parametrize("options", [{}, {"by_batch": True}, {"threads": 3, "batch": 2}], ids=str)
def test_a_handler_that_cancels_all_tasks_of_the_loop_has_failed_and_the_worker_continues(
    client: shardq.Client, options: dict[str, Any]
) -> None:
    queue = client.create_queue("jobs", max_deliveries=2)
    client.semaphore("ten", permits=10)
    queue.producer().send_many([b"x"] * 3 + [b"poison"] + [b"x"] * 3)

    async def handler(given: shardq.aio.Message | shardq.aio.Batch) -> None:
        messages = list(given) if isinstance(given, shardq.aio.Batch) else [given]
        if any(message.body == b"poison" for message in messages):
            await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                task.cancel()
        await asyncio.sleep(0.01)

    report = Worker(queue, handler, semaphore="ten", retry_delay=0, idle_exit=0.5, **options).run()
    assert (report.worked, report.dead_lettered) == (6, 1)
    assert [dead.body for dead in client.queue("jobs.dead").peek()] == [b"poison"]
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 0)
    assert client.semaphore("ten").state().held == 0


# -- in a pool --------------------------------------------------------------------------------------------------


def test_a_message_that_kills_its_process_is_the_only_dead_letter(client: shardq.Client, url: str) -> None:
    queue = client.create_queue("jobs", visibility_timeout=0.5, max_deliveries=2)
    queue.producer().send_many([b"first", b"second", b"poison", b"third", b"fourth"])
    report = WorkerPool(url, "jobs", crash_on_poison, idle_exit=2).run()
    assert (report.restarts, queue.counts().ready, queue.counts().in_flight) == (2, 0, 0)
    assert [dead.body for dead in client.queue("jobs.dead").peek()] == [b"poison"]


def test_sigterm_lets_the_handlers_of_a_pool_end(url: str, queue: Queue, handlers: str) -> None:
    queue.producer().send_many([b"x"] * 60)

    def terminate(report: PoolReport) -> None:
        if report.total.in_flight and not told:
            told.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    told: list[bool] = []
    report = WorkerPool(url, "jobs", f"{handlers}:slowly", batch=10, on_progress=terminate).run()
    counts = queue.counts()
    assert 0 < report.total.worked < 60
    assert (counts.ready, counts.in_flight) == (60 - report.total.worked, 0)
    assert {message.deliveries for message in queue.peek(100)} == {0}


def test_a_process_whose_handler_hangs_is_killed_and_replaced(
    url: str, client: shardq.Client, tmp_path: Any, handlers: str
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=1)
    queue.producer().send_many([str(tmp_path / "hung").encode()] * 2)
    report = WorkerPool(url, "short", f"{handlers}:hang_asleep_once", idle_exit=1.5, handler_timeout=1).run()
    assert report.restarts == 1
    assert report.total.worked in (2, 3)  # the other one may have ended in the process that was killed
    assert (queue.counts().ready, queue.counts().in_flight) == (0, 0)
