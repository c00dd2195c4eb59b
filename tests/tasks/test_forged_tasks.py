"""Messages in the queue of tasks that others wrote by hand: none of them ends the worker, or holds up the tasks."""

from __future__ import annotations

import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import shardq
from shardq.tasks import TaskWorker
from shardq.testing import ManualClock
from tests.tasks.sums import Sums

STEPS = [
    "",
    "x",
    "tasks:0:0",
    f"tasks:0:0:{1:032x}:0",
    f"tasks:0:0:{1:032x}:0#",
    f"tasks:0:0:{1:032x}:0#x",
    7,
    True,
]
KEEPS = [float("inf"), 1e300, -1, "x", True, 10**15]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"task": 7},
        {"task": "shardq.workflow"},
        {"task": "shardq.workflow", "task-run": "x"},
        {"task": "shardq.workflow", "task-run": f"tasks:0:0:{1:032x}:0@1"},
        {"task": "shardq.workflow", "task-step": f"tasks:0:0:{1:032x}:0#1", "task-keep": 60.0},
        {"task": "add", "task-timeout": "x"},
        {"task": "add", "task-input-apart": 1, "task-keep": 60.0, "task-step": f"tasks:0:0:{1:032x}:0#1"},
        *({"task": "add", "task-keep": keep} for keep in KEEPS),
        *(
            {"task": name, "task-step": step, "task-keep": 60.0}
            for step in STEPS
            for name in ("add", "shardq.workflow")
        ),
        *(
            {"task": "unknown", "task-step": step, "task-keep": keep}
            for step in STEPS[:3]
            for keep in KEEPS[:2]
        ),
    ],
    ids=str,
)
def test_a_message_that_no_sender_of_tasks_makes_costs_only_itself(
    sums: Sums, client: shardq.Client, clock: ManualClock, headers: dict[str, Any], threads: int
) -> None:
    queue = sums.tasks.binding.queue("tasks")
    for body in (b"", b"x", msgspec.msgpack.encode({"first": 1, "second": 2})):
        queue.producer().send(body, headers=headers)
    queue.producer().send_stream(io.BytesIO(bytes(1_500_000)), headers=headers)
    result = sums.add.options(keep_result=86_400.0).send(20, 3)
    for _ in range(6):
        TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
        clock.advance(700)
    assert result.get(timeout=0) == 23
    assert queue.peek() == []


@pytest.mark.parametrize("threads", [0, 2])
def test_a_damaged_task_costs_only_itself(tmp_path: Path, clock: ManualClock, threads: int) -> None:
    file = tmp_path / "queue.db"
    with shardq.connect(f"sqlite:///{file}", clock=clock) as client:
        sums = Sums(client)
        damaged, flow = sums.add.send(1, 2), sums.squares().send()
        with closing(sqlite3.connect(file)) as database, database:
            place = damaged.id.split(":")[3]
            database.execute("UPDATE slice SET data = x'c1' WHERE bundle_id = ?", [bytes.fromhex(place)])
        sound = sums.add.send(20, 3)
        for _ in range(3):
            TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
            clock.advance(700)
        assert (sound.get(timeout=0), flow.state) == (23, "done")
