"""A task that waits for another one: its worker may have no thread to run that."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import shardq
from shardq.tasks import TaskFailed, Tasks, TaskWorker, group


def inner(number: int) -> int:
    return number + 1


@pytest.fixture
def waits(tasks: Tasks) -> dict[str, Any]:
    """Tasks that wait for others in each way that there is."""
    task = tasks.task(inner)
    pair = group(task.signature(1), task.signature(2))

    @tasks.task
    def get() -> Any:
        return task.send(1).get()

    @tasks.task
    def wait() -> None:
        task.send(1).wait()

    @tasks.task
    def get_of_workflow() -> Any:
        return pair.send().get()

    @tasks.task
    async def get_in_async() -> Any:
        return task.send(1).get()

    @tasks.task
    async def await_result() -> Any:
        return await task.send(1)

    @tasks.task
    async def await_workflow() -> Any:
        return await pair.send()

    @tasks.task
    def get_in_call() -> Any:
        return get.call()

    return {name: each for name, each in locals().items() if name not in ("tasks", "task", "pair")}


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize(
    "name",
    ["get", "wait", "get_of_workflow", "get_in_async", "await_result", "await_workflow", "get_in_call"],
)
def test_a_task_that_would_wait_for_another_one_fails_and_tells_what_to_do(
    tasks: Tasks, client: shardq.Client, waits: dict[str, Any], name: str, threads: int
) -> None:
    result = waits[name].send()
    report = TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    with pytest.raises(TaskFailed, match=r"WaitRejected: .*give a timeout"):
        result.get(timeout=0)
    assert (report.failed, report.dead_lettered) == (1, 1)
    assert client.queue("tasks").counts().ready == 0  # the others have run


def test_a_task_may_ask_for_what_has_ended_and_wait_with_a_timeout(
    tasks: Tasks, client: shardq.Client
) -> None:
    task = tasks.task(inner)

    @tasks.task
    def outer(identity: str) -> int:
        return task.result(identity).get() + task.send(1).get(timeout=60)

    done = task.send(1)
    TaskWorker(tasks, client, threads=1, idle_exit=0).run()
    result = outer.send(done.id)
    TaskWorker(tasks, client, threads=2, idle_exit=0).run()
    assert result.get(timeout=0) == 4


@pytest.mark.parametrize("many", [False, True])
def test_a_worker_that_is_told_to_stop_ends_a_task_that_waits_for_another_one(
    tasks: Tasks, client: shardq.Client, many: bool
) -> None:
    task, begun = tasks.task(inner), threading.Event()

    @tasks.task
    def outer() -> Any:
        sent = group(task.signature(1), task.signature(2)).send() if many else task.send(1)
        begun.set()
        return sent.get(timeout=3600)

    result = outer.send()
    worker = TaskWorker(tasks, client, threads=1)
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    assert begun.wait(60)
    worker.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert (worker.report.failed, result.state) == (1, "waiting")
    assert "ResultTimeout" in str(worker.report.last_failure)
