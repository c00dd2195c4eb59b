"""A task is running while its function runs, not while a worker holds it for later."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.tasks import Task, Tasks, TaskWorker
from tests.processes import eventually


class Held:
    """Tasks that run until the test lets them end, one after the other."""

    def __init__(self, url: str, client: shardq.Client) -> None:
        self.tasks = Tasks(url)
        self.turns = threading.Semaphore(0)
        self.begun: list[int] = []

        @self.tasks.task(queue="held")
        def hold(number: int) -> int:
            self.begun.append(number)
            self.turns.acquire(timeout=60)
            return number

        self.hold: Task[[int], int, int] = hold
        self.tasks.bind(client)


@pytest.fixture
def held(url: str) -> Iterator[Held]:
    with shardq.connect(url) as client:
        yield Held(url, client)


@contextmanager
def working(held: Held, threads: int) -> Iterator[None]:
    worker = TaskWorker(held.tasks, held.tasks.task_client.client, threads=threads)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        held.turns.release()  # what runs ends, and what waits is returned
        thread.join()
        while held.turns.acquire(blocking=False):
            pass


def running(results: Any) -> list[str]:
    return [each.id for each in results if each.state == "running"]


def states(results: Any) -> list[str]:
    return sorted(each.state for each in results)


@pytest.mark.parametrize("group", [None, "g"])
def test_as_many_tasks_are_running_as_run(held: Held, group: str | None) -> None:
    results = [held.hold.options(group=group).send(number) for number in range(4)]
    with working(held, threads=1):
        assert eventually(lambda: states(results) == ["running", "waiting", "waiting", "waiting"])
        first = running(results)
        held.turns.release()
        assert eventually(lambda: len(running(results)) == 1 and running(results) != first)
        held.turns.release(100)
        assert eventually(lambda: states(results) == ["done"] * 4)


def test_the_command_line_lists_them_so(held: Held, url: str) -> None:
    for number in range(3):
        held.hold.send(number)

    def listed(state: str) -> int:
        told = CliRunner().invoke(main, ["--url", url, "task", "list", "--state", state, "--json"])
        return len(json.loads(told.stdout)["tasks"])

    with working(held, threads=1):
        assert eventually(lambda: (listed("running"), listed("waiting")) == (1, 2))


def test_what_a_stopped_worker_returns_is_running_when_another_one_runs_it(held: Held) -> None:
    results = [held.hold.options(group="g").send(number) for number in range(3)]
    with working(held, threads=1):
        assert eventually(lambda: states(results) == ["running", "waiting", "waiting"])
        assert eventually(lambda: held.begun == [0])  # its worker returns a task that it has not called
    assert states(results) == ["done", "waiting", "waiting"]
    with working(held, threads=1):
        assert eventually(lambda: [each.state for each in results] == ["done", "running", "waiting"])
