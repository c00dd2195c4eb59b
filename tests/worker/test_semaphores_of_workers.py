"""A worker holds a permit of a semaphore for each call of its handler."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import shardq
from shardq.worker import PoolReport, Worker, WorkerPool
from shardq.worker.gate import permit_gate
from shardq.worker.options import WorkerOptions

PATIENCE = 30.0  # seconds


def fill(queue: shardq.Queue, count: int) -> None:
    queue.producer().send_many(b"%d" % number for number in range(count))


@pytest.mark.parametrize("by_batch", [False, True])
def test_each_call_of_a_handler_holds_a_permit(
    client: shardq.Client, queue: shardq.Queue, by_batch: bool
) -> None:
    semaphore = client.semaphore("smtp", permits=2)
    fill(queue, 10)
    held: list[int] = []
    options: dict[str, Any] = {"by_batch": by_batch, "batch": 5, "idle_exit": 0, "semaphore": "smtp"}
    report = Worker(queue, lambda _: held.append(semaphore.state().held), **options).run()
    assert (report.worked, set(held)) == (10, {1})
    assert semaphore.state().held == 0


def test_a_handler_that_raises_gives_its_permit_back(client: shardq.Client, queue: shardq.Queue) -> None:
    semaphore = client.semaphore("smtp", permits=1)
    fill(queue, 3)

    def fail(_: object) -> None:
        raise ValueError

    report = Worker(queue, fail, idle_exit=0, retry_delay=60, semaphore="smtp").run()
    assert report.failed == 3
    assert semaphore.state().held == 0


def test_a_worker_that_waits_for_a_permit_can_be_stopped(client: shardq.Client, queue: shardq.Queue) -> None:
    fill(queue, 3)
    with client.semaphore("smtp", permits=1).acquire():
        worker = Worker(queue, lambda _: pytest.fail("it was called"), semaphore="smtp")
        thread = threading.Thread(target=worker.run)
        thread.start()
        while not worker.report.in_flight:
            thread.join(0.01)
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert (worker.report.worked, queue.counts().ready) == (0, 3)


@pytest.mark.parametrize("by_batch", [False, True])
def test_messages_whose_leases_end_while_a_worker_waits_for_a_permit_are_not_begun(
    client: shardq.Client, by_batch: bool
) -> None:
    queue = client.create_queue("short", shards=1, time_shards=1, visibility_timeout=2)
    fill(queue, 3)
    permit = client.semaphore("smtp", permits=1).acquire()
    options: dict[str, Any] = {
        "by_batch": by_batch,
        "keep_leases": False,
        "idle_exit": 0,
        "semaphore": "smtp",
    }
    worker = Worker(queue, lambda _: pytest.fail("it was called"), **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    while not worker.report.in_flight:
        thread.join(0.01)
    with queue.consumer() as other:
        taken = other.receive(3, wait=PATIENCE)
        taken.extend(PATIENCE)
        permit.release()
        thread.join(PATIENCE)
        assert (len(taken), worker.report.lease_lost, worker.report.failed) == (3, 3, 0)
        taken.ack()


def test_workers_share_the_permits(client: shardq.Client, queue: shardq.Queue) -> None:
    client.semaphore("smtp", permits=2)
    fill(queue, 24)
    inside, most = [0], [0]
    lock = threading.Lock()

    def handle(_: object) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.001)
        with lock:
            inside[0] -= 1

    workers = [Worker(queue, handle, batch=3, idle_exit=0.1, semaphore="smtp") for _ in range(4)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert sum(worker.report.worked for worker in workers) == 24
    assert most[0] <= 2


def test_a_permit_that_was_lost_while_the_handler_ran_is_logged(
    client: shardq.Client, queue: shardq.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    client.semaphore("smtp", permits=1)
    fill(queue, 1)

    def lose(_: object) -> None:
        client.queue("_shardq/permits/smtp").purge()

    with caplog.at_level(logging.WARNING):
        assert Worker(queue, lose, idle_exit=0, semaphore="smtp").run().worked == 1
    assert "permit of semaphore 'smtp' is lost" in caplog.text


def test_a_semaphore_that_is_missing_is_named(queue: shardq.Queue) -> None:
    with pytest.raises(shardq.QueueNotFound, match="semaphore 'smtp'"):
        Worker(queue, lambda _: None, idle_exit=0, semaphore="smtp").run()
    with pytest.raises(shardq.InvalidName):
        WorkerOptions(semaphore="no name")
    with pytest.raises(shardq.InvalidName):
        WorkerPool("sqlite:///none.db", "q", print, semaphore="no name")


def test_a_process_that_waits_for_a_permit_does_not_hang(
    url: str, client: shardq.Client, queue: shardq.Queue, handlers: str
) -> None:
    fill(queue, 2)
    permit = client.semaphore("smtp", permits=1).acquire()
    waits: list[int] = []
    released: list[None] = []

    def watch(report: PoolReport) -> None:
        waits.append(report.total.permit_waits)
        if waits[-1] > 4 and not released:
            released.append(permit.release())

    pool = WorkerPool(
        url,
        "jobs",
        f"{handlers}:nothing",
        semaphore="smtp",
        handler_timeout=1,
        idle_exit=1,
        on_progress=watch,
    )
    report = pool.run()
    assert (report.total.worked, report.restarts) == (2, 0)


def test_who_waits_for_a_permit_beside_a_handler_that_runs_does_not_get_on(client: shardq.Client) -> None:
    gate_waits: list[int] = []
    semaphore = client.semaphore("smtp", permits=1)
    gate = permit_gate(semaphore, lambda: len(stopped) > 1, lambda: gate_waits.append(1))
    stopped: list[int] = []
    with gate() as is_open:
        assert is_open

        def wait() -> None:
            with gate() as also:
                stopped.append(also)

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(1.2)
        assert waiting.is_alive()
    waiting.join(PATIENCE)
    assert (stopped, gate_waits) == ([True], [])
