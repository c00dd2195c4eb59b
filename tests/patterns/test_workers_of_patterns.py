"""Workers and pools of patterns: handlers by pattern, queues that come while they run."""

from __future__ import annotations

import threading

import pytest

import shardq
from shardq.tasks import Tasks, TaskWorker
from shardq.worker import Worker, WorkerPool
from shardq.worker.scaling import DueMessages


def filled(client: shardq.Client, *names: str) -> None:
    for name in names:
        client.create_queue(name, shards=1, time_shards=1).producer().send(name.encode())


def test_a_worker_handles_the_messages_of_all_queues_that_match(client: shardq.Client) -> None:
    filled(client, "mail/a", "mail/b", "mail/b/old", "orders")
    seen: list[bytes] = []
    report = Worker(client.pattern("mail/*"), lambda message: seen.append(message.body), idle_exit=0).run()
    assert sorted(seen) == [b"mail/a", b"mail/b"]
    assert (report.worked, report.failed) == (2, 0)
    assert client.queue("mail/a").counts().ready == 0


def test_each_pattern_has_its_handler_and_a_name_goes_before_patterns(client: shardq.Client) -> None:
    filled(client, "mail/a", "mail/b", "orders")
    seen: list[tuple[str, str | None]] = []
    Worker(
        [client.queue("mail/b"), client.pattern("mail/*"), client.queue("orders")],
        {
            "mail/b": lambda message: seen.append(("one", message.queue)),
            "mail/*": lambda message: seen.append(("many", message.queue)),
            "orders": lambda message: seen.append(("orders", message.queue)),
        },
        idle_exit=0,
    ).run()
    assert sorted(seen) == [("many", "mail/a"), ("one", "mail/b"), ("orders", "orders")]


def test_a_failure_is_retried_by_the_settings_of_the_queue_that_matches(client: shardq.Client) -> None:
    client.create_queue("mail/a", max_deliveries=1).producer().send(b"poison")

    def fail(_message: shardq.Message) -> None:
        raise ValueError("broken")

    report = Worker(client.pattern("mail/*"), fail, idle_exit=0).run()
    assert report.dead_lettered == 1
    assert client.queue("mail/a.dead").counts().ready == 1


def test_a_worker_waits_while_nothing_matches_and_stops_when_told(client: shardq.Client) -> None:
    worker = Worker(client.pattern("mail/*"), print)
    thread = threading.Thread(target=worker.run)
    thread.start()
    worker.stop()
    thread.join(30)
    assert not thread.is_alive()


def test_a_semaphore_can_be_held_for_queues_that_match(client: shardq.Client) -> None:
    client.semaphore("door", permits=1)
    filled(client, "mail/a")
    assert Worker(client.pattern("mail/*"), lambda _: None, semaphore="door", idle_exit=0).run().worked == 1


def test_the_processes_of_a_pool_receive_from_queues_that_match(url: str) -> None:
    with shardq.connect(url) as client:
        filled(client, "mail/a", "mail/b", "orders")
        report = WorkerPool(url, "mail/*", "builtins:repr", processes=1, idle_exit=0.1).run()
        assert report.total.worked == 2
        assert client.queue("orders").counts().ready == 1


def test_a_pool_counts_what_is_due_in_queues_that_match(url: str) -> None:
    with shardq.connect(url) as client:
        filled(client, "mail/a", "mail/b", "orders")
        backlog = DueMessages(url, ["mail/*", "orders"], 0.01)
        backlog.start()
        try:
            while (due := backlog.take()) is None:
                threading.Event().wait(0.01)
        finally:
            backlog.close()
        assert due == 3


def test_a_task_worker_runs_tasks_of_queues_that_match(url: str, client: shardq.Client) -> None:
    tasks = Tasks(url)
    ran: list[str] = []

    def run(name: str) -> None:
        ran.append(name)

    made = [tasks.task(name=name, queue=name)(run) for name in ("jobs/a", "jobs/b", "others")]
    tasks.bind(client)
    for task in made:
        task.send(task.name)
    assert TaskWorker(tasks, client, queues=["jobs/*"], idle_exit=0).run().worked == 2
    assert sorted(ran) == ["jobs/a", "jobs/b"]


def test_a_worker_refuses_a_handler_for_what_it_does_not_receive(client: shardq.Client) -> None:
    with pytest.raises(shardq.InvalidSetting, match="mail/a"):
        Worker(client.pattern("mail/*"), {"mail/*": print, "mail/a": print})
