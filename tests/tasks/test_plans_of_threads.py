"""What the threads of a worker know of workflows and queues, while others of them forget it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

import shardq
from shardq.tasks import Tasks, chain, task_client
from shardq.tasks.entries import EntryQueue
from tests.forking import all_held, forked
from tests.tasks.sums import Sums

ROUNDS = 3_000


@pytest.fixture(autouse=True)
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*calls: Callable[[], object]) -> list[object]:
    """Call each again and again in a thread of its own; returns what they returned or raised that was nothing."""
    wrong: list[object] = []

    def repeat(call: Callable[[], object]) -> None:
        try:
            wrong.extend(1 for _ in range(ROUNDS) if call() is None)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=repeat, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


class DeletedAgainAndAgain:
    """A queue and its producer: each thread finds every second time that it is deleted."""

    def __init__(self) -> None:
        self._found = threading.local()

    def producer(self) -> Self:
        return self

    def send(self, _: shardq.OutgoingMessage) -> str:
        self._found.there = not getattr(self._found, "there", True)
        if not self._found.there:
            raise shardq.QueueNotFound("deleted")
        return "id"

    def send_many(self, messages: Sequence[shardq.OutgoingMessage]) -> list[str]:
        return [self.send(each) for each in messages]


def test_a_plan_is_never_missing_because_another_thread_has_read_too_many(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_client, "MOST_PLANS", 1)
    flows = [chain(sums.add.signature(1, each), sums.add.then(1)).send().id for each in range(3)]
    sums.tasks.drain()
    bound = sums.tasks.task_client
    stored = {flow: bound.results.plan(flow) for flow in flows}
    monkeypatch.setattr(bound.results, "plan", stored.__getitem__)
    assert together(*(lambda flow=flow: bound.plan(flow) for flow in (*flows, *flows))) == []


def test_a_queue_that_one_thread_finds_deleted_is_opened_again_by_the_others(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound, queue, message = tasks.task_client, DeletedAgainAndAgain(), shardq.OutgoingMessage(body=b"x")
    monkeypatch.setattr(bound, "queue", lambda *_: queue)
    client: Any = SimpleNamespace(create_queue=lambda *_, **__: queue)
    entries = EntryQueue(client, "results")

    def write() -> bool:
        entries.write([message])
        return True

    sends = [lambda: bound.send("tasks", [message])] * 2
    assert together(*sends, write, write) == []


def test_a_list_of_results_that_was_deleted_is_made_again(sums: Sums, client: shardq.Client) -> None:
    first = sums.add.send(1, 2)
    sums.tasks.drain()
    client.delete_queue("_shardq/tasks/results")
    second = sums.add.send(3, 4)
    sums.tasks.drain()
    assert (first.state, second.get(timeout=0)) == ("missing", 7)


def test_a_forked_child_sends_tasks_and_reads_results_whatever_its_parents_threads_held(sums: Sums) -> None:
    result = sums.add.send(1, 2)
    sums.tasks.drain()

    def use() -> str:
        return f"{result.get(timeout=0)} {sums.add.send(3, 4).id} {chain(sums.fail.signature(1)).send().id}"

    with all_held(sums.tasks):
        value, task, flow = forked(use).split()
    assert (value, sums.add.result(task).state, sums.tasks.workflow(flow).state) == (
        "3",
        "waiting",
        "waiting",
    )
