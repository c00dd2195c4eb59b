"""Each task runs in a context of its own: what it sets of context variables is seen by nothing after it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

import shardq
from shardq.tasks import CurrentTask, Middleware, Task, Tasks, TaskWorker, current_task

TENANT: ContextVar[str] = ContextVar("tenant", default="none")


class Noting(Middleware):
    """Notes what a task has set, as a middleware may that sets it itself."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:
        self.seen.append(TENANT.get())


def noted(tasks: Tasks, *, asynchronous: bool) -> Task[[str], Any, str]:
    if asynchronous:

        @tasks.task
        async def later(tenant: str) -> str:
            before = TENANT.get()
            TENANT.set(tenant)
            return before

        return later

    @tasks.task
    def note(tenant: str) -> str:
        before = TENANT.get()
        TENANT.set(tenant)
        return before

    return note


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("threads", [0, 1, 2])
def test_no_task_sees_what_another_one_has_set(
    tasks: Tasks, client: shardq.Client, asynchronous: bool, threads: int
) -> None:
    note = noted(tasks, asynchronous=asynchronous)
    results = [note.send(f"tenant {number}") for number in range(8)]
    TaskWorker(tasks, client, threads=threads, idle_exit=0).run()
    assert {result.get(timeout=0) for result in results} == {"none"}
    assert TENANT.get() == "none"


def test_a_group_of_tasks_in_one_thread_shares_nothing(tasks: Tasks) -> None:
    note = noted(tasks, asynchronous=False)
    results = [note.options(group="g").send(f"tenant {number}") for number in range(4)]
    for _ in range(4):
        tasks.drain()
    assert {result.get(timeout=0) for result in results} == {"none"}


@pytest.mark.parametrize(
    "run", [lambda tasks, note: note.call("a"), lambda tasks, note: (note.send("a"), tasks.drain())]
)
def test_what_a_task_sets_does_not_leave_a_call_or_a_drain(
    tasks: Tasks, run: Callable[[Tasks, Task[[str], Any, str]], object]
) -> None:
    token = TENANT.set("the test")
    try:
        run(tasks, noted(tasks, asynchronous=False))
        assert TENANT.get() == "the test"
    finally:
        TENANT.reset(token)
    with pytest.raises(shardq.InvalidSetting, match="no task is running here"):
        current_task()


def test_a_task_sees_what_its_caller_and_its_middleware_have_set(client: shardq.Client) -> None:
    class Setting(Middleware):
        def before(self, task: CurrentTask) -> None:
            TENANT.set(f"{TENANT.get()}, the middleware")

    noting = Noting()
    tasks = Tasks(middleware=[Setting(), noting])
    tasks.bind(client)
    note = noted(tasks, asynchronous=False)
    token = TENANT.set("the test")
    try:
        assert [note.call("a"), note.call("b")] == ["the test, the middleware"] * 2
        assert TENANT.get() == "the test"
    finally:
        TENANT.reset(token)
    assert noting.seen == ["a", "b"]
