"""A message that kills its process takes no other message along to the dead letters."""

from __future__ import annotations

import os
from typing import Any

import pytest

import shardq
from shardq import Batch, Message
from shardq.tasks import TaskPool
from shardq.testing import ManualClock
from shardq.worker import Worker, WorkerPool
from tests.tasks.apps_that_die import tasks, work

USES = [
    {},
    {"batch": 2},
    {"prefetch": 3},
    {"by_batch": True},
    {"by_batch": True, "prefetch": 10},
]


CASES = [
    *((most, options) for most in (1, 3) for options in USES),
    *((3, options) for options in ({"threads": 4}, {"threads": 4, "by_batch": True})),
]


@pytest.mark.parametrize(("most", "options"), CASES)
def test_a_message_at_its_last_delivery_is_held_alone(most: int, options: dict[str, Any]) -> None:
    clock = ManualClock()
    with shardq.connect("memory://", clock=clock) as client:
        queue = client.create_queue("jobs", max_deliveries=most, visibility_timeout=30)
        queue.producer().send_many([b"%d" % number for number in range(5)])
        for _ in range(most - 1):  # workers that died with all of them
            queue.consumer().receive(5)
            clock.advance(31)
        held: list[int] = []

        def handle(_: Message | Batch) -> None:
            held.append(sum(each.deliveries == most for each in queue.peek(10) if each.owner))

        report = Worker(queue, handle, idle_exit=0, **options).run()
        assert (held, report.worked, report.returned) == ([1] * 5, 5, 0)
        assert client.queue("jobs.dead").counts().ready == 0


def crash_on_poison(message: Message | Batch) -> None:
    for each in [message] if isinstance(message, Message) else message:
        if each.body == b"poison":
            os._exit(9)  # as by the OOM killer


@pytest.mark.parametrize(
    "options",
    [
        {"batch": 2},
        {"by_batch": True, "prefetch": 10},
        {"max_deliveries": 1},
        {"threads": 3},
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in (
                {},
                {"prefetch": 3},
                {"by_batch": True},
                {"threads": 2, "by_batch": True, "batch": 2},
                {"processes": 2, "batch": 3},
            )
        ),
    ],
)
def test_a_message_that_kills_its_process_is_the_only_dead_letter(
    client: shardq.Client, url: str, options: dict[str, Any]
) -> None:
    options = dict(options)
    most = options.pop("max_deliveries", 2)
    queue = client.create_queue("jobs", visibility_timeout=0.5, max_deliveries=most)
    queue.producer().send_many([b"first", b"second", b"poison", b"third", b"fourth"])
    report = WorkerPool(url, "jobs", crash_on_poison, idle_exit=2, **options).run()
    assert (report.restarts, queue.counts().ready, queue.counts().in_flight) == (most, 0, 0)
    assert [dead.body for dead in client.queue("jobs.dead").peek()] == [b"poison"]


def test_a_task_that_kills_its_process_is_the_only_one_that_fails(client: shardq.Client, url: str) -> None:
    queue = client.create_queue("tasks", visibility_timeout=0.5, max_deliveries=2)
    tasks.bind(client)
    names = ["first", "second", "poison", "third", "fourth"]
    results = dict(zip(names, work.send_many(map(work.signature, names)), strict=True))
    report = TaskPool(url, "tests.tasks.apps_that_die", threads=3, idle_exit=2).run()
    assert (report.restarts, queue.counts().ready, queue.counts().in_flight) == (2, 0, 0)
    assert [name for name, result in results.items() if result.state != "done"] == ["poison"]
