"""Messages in the queue of tasks that others wrote by hand: none of them ends the worker, or holds up the tasks."""

from __future__ import annotations

import io
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.tasks import TaskWorker, Workflow, chord, group, workflow
from shardq.tasks.entries import EntryQueue, is_step
from shardq.tasks.plans import read_plan
from shardq.tasks.signature import Signature
from shardq.testing import ManualClock
from tests.tasks.sums import StopsAfterOne, Sums

UNKNOWN = f"tasks:0:0:{1:032x}:0"
NO_STEPS = [
    "",
    "x",
    "tasks:0:0",
    "tasks:0:0#1",
    "x:0#1",
    "#1",
    f"tasks:0:0:{1:031x}:0#1",
    f"tasks:0:0:{255:032X}:0#1",
    f"tasks:0:{1:032x}:0#1",
    f" tasks:0:0:{1:032x}:0#1",
    UNKNOWN,
    f"{UNKNOWN}#",
    f"{UNKNOWN}#x",
    f"{UNKNOWN}{'#1' * 100}",
    f"{UNKNOWN}@10000#1",
    7,
    True,
]
STEPS = [*NO_STEPS, f"{UNKNOWN}#1", f"{UNKNOWN}@999#1", f"{UNKNOWN}#999999999#1"]
TIMEOUTS = ["x", 5, -1.0, 1e300, float("inf"), float("nan")]
KEEPS = [float("inf"), 1e300, -1, "x", True, 10**15]
ADDITION = msgspec.msgpack.encode({"first": 1, "second": 2})


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"task": 7},
        {"task": "shardq.workflow"},
        {"task": "shardq.workflow", "task-run": "x"},
        {"task": "shardq.workflow", "task-run": f"{UNKNOWN}@1"},
        {"task": "shardq.workflow", "task-run": f"{UNKNOWN}@10000"},
        *({"task": name, "task-timeout": each} for name in ("add", "total") for each in TIMEOUTS),
        {"task": "add", "task-input-apart": 1, "task-keep": 60.0, "task-step": f"{UNKNOWN}#1"},
        *({"task": "add", "task-keep": keep} for keep in KEEPS),
        *({"task": "add", "task-step": step} for step in STEPS),
        *(
            {"task": name, "task-step": step, "task-keep": 60.0}
            for step in STEPS
            for name in ("add", "shardq.workflow")
        ),
        *(
            {"task": "unknown", "task-step": step, "task-keep": keep}
            for step in STEPS[:4]
            for keep in KEEPS[:2]
        ),
    ],
    ids=str,
)
def test_a_message_that_no_sender_of_tasks_makes_costs_only_itself(
    sums: Sums, client: shardq.Client, clock: ManualClock, headers: dict[str, Any], threads: int
) -> None:
    queue = sums.tasks.task_client.queue("tasks")
    for body in (b"", b"x", ADDITION):
        queue.producer().send(body, headers=headers)
    queue.producer().send_stream(io.BytesIO(bytes(1_500_000)), headers=headers)
    result = sums.add.options(keep_result=86_400.0).send(20, 3)
    for _ in range(6):
        TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
        clock.advance(700)
    assert result.get(timeout=0) == 23
    assert queue.peek() == []


@pytest.mark.parametrize("forged", NO_STEPS, ids=str)
def test_what_no_step_can_have_is_no_id_of_one(forged: object) -> None:
    assert not is_step(forged)


class Forgers(Sums):
    """An app one of whose tasks returns a workflow."""

    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)

        @self.tasks.task
        def spread() -> Workflow | Signature[int]:
            return group(self.add.signature(each, each) for each in range(3))

        self.spread = spread


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", ["add", "spread", "fail", "shardq.workflow"])
@pytest.mark.parametrize("path", ["#0", "#1", "#5", "#99", "#99#0", "#0#0", "#0#99", "@1#0", "@1#99"])
def test_a_forged_step_of_a_real_workflow_ends_no_worker(
    client: shardq.Client,
    url: str,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    name: str,
    threads: int,
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)  # so that #0 is a bucket
    forgers = Forgers(client)
    flow = chord((forgers.add.signature(each, each) for each in range(5)), forgers.total.then()).send()
    bodies = {"add": ADDITION, "fail": msgspec.msgpack.encode({"number": 1})}
    queue = forgers.tasks.task_client.queue("tasks")
    _begin_what_was_sent(forgers, url, clock)
    headers: dict[str, Any] = {"task": name, "task-keep": 60.0, "task-step": flow.id + path}
    queue.producer().send(bodies.get(name, msgspec.msgpack.encode({})), headers=headers, priority=0)
    for _ in range(6):
        TaskWorker(forgers.tasks, client, threads=threads, idle_exit=0).run()
        clock.advance(700)
    sound = forgers.add.send(20, 3)
    TaskWorker(forgers.tasks, client, threads=threads, idle_exit=0).run()
    assert sound.get(timeout=0) == 23
    assert queue.peek() == []


def _begin_what_was_sent(sums: Sums, url: str, clock: ManualClock) -> None:
    """Run one task, that which begins the workflow, and none of its steps."""
    hooks = StopsAfterOne()
    with shardq.connect(url, clock=clock, hooks=hooks) as client, sums.tasks.bound(client):
        hooks.worker = TaskWorker(sums.tasks, client, threads=0, batch=1, idle_exit=0)
        assert hooks.worker.run().worked == 1


def _plan(**changes: Any) -> dict[str, Any]:
    body = msgspec.msgpack.encode({"second": 2})
    first = {"task": "add", "queue": "tasks", "body": ADDITION, "priority": 1}
    then = {**first, "body": body, "takes": "first", "after": [0], **changes.pop("then", {})}
    return {"steps": [first, then], "keep": 86_400.0, "ends": [1], **changes}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize(
    "plan",
    [
        {"ends": [2]},
        {"ends": [-1]},
        {"ends": []},
        {"steps": []},
        {"then": {"after": [2]}},
        {"then": {"after": [-1]}},
        {"then": {"body": b"x"}},
        {"then": {"body": b"\x81\xa1\xff\x01"}},
        {"then": {"body": b"\x81\xa1x" + b"\x91" * 100_000}},
        {"then": {"queue": "no name"}},
        {"then": {"queue": "_shardq/tasks/results"}},
        {"then": {"priority": 99}},
        {"then": {"delay": -1.0}},
        {"then": {"group": ""}},
        {"then": {"task": "shardq.workflow"}},
        {"keep": -1.0},
        {"keep": 1e300},
        {"keep": 0.0},
        {"tail": True},
    ],
    ids=lambda plan: str(plan)[:60],
)
def test_a_forged_plan_ends_no_worker_and_no_command(url: str, plan: dict[str, Any], threads: int) -> None:
    clock = ManualClock(time.time_ns() // 1_000)  # as the commands see it
    with shardq.connect(url, clock=clock) as client:
        _work_beside_a_forged_plan(url, Sums(client), client, clock, plan, threads)


def _work_beside_a_forged_plan(
    url: str, sums: Sums, client: shardq.Client, clock: ManualClock, plan: dict[str, Any], threads: int
) -> None:
    queue = sums.tasks.task_client.queue("tasks")
    body = msgspec.msgpack.encode(_plan(**plan))
    forged = queue.producer().send(body, headers={"task": "shardq.workflow", "task-keep": 60.0})
    result = sums.add.options(keep_result=86_400.0).send(20, 3)
    for _ in range(6):
        for command in (["show", forged], ["list"], ["list", "tasks"]):
            told = CliRunner().invoke(main, ["--url", url, "task", *command])
            assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
        TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
        clock.advance(700)
    assert result.get(timeout=0) == 23
    assert queue.peek() == []


@pytest.mark.parametrize(
    "after", [[[], [0, 2], [1]], [[], [1]], [[], [0, 0]], [[0], []], [[], [], [1, 0]]], ids=str
)
def test_a_plan_whose_steps_wait_for_themselves_or_twice_for_one_is_none(after: list[list[int]]) -> None:
    (step, _) = _plan()["steps"]
    forged = msgspec.msgpack.encode(_plan(steps=[{**step, "after": each} for each in after]))
    with pytest.raises(msgspec.ValidationError, match="names others"):
        read_plan(forged)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("step", [None, f"{UNKNOWN}#1"])
def test_a_name_of_a_megabyte_costs_only_its_message(
    client: shardq.Client, sums: Sums, step: str | None, threads: int
) -> None:
    queue = client.create_queue("tasks", max_message_bytes=4_000_000)
    headers: dict[str, Any] = {"task": "x" * 3_000_000, "task-keep": 60.0}
    queue.producer().send(b"", headers=headers | ({} if step is None else {"task-step": step}))
    result = sums.add.send(20, 3)
    report = TaskWorker(sums.tasks, client, threads=threads, idle_exit=0).run()
    assert (report.dead_lettered, result.get(timeout=0)) == (1, 23)
    assert len(report.last_failure or "") < 1_000


@pytest.mark.parametrize(
    "headers",
    [
        {"task": "add", "task-keep": 60.0, "task-step": "@9999" + "#1" * 60},
        {"task": "shardq.workflow", "task-keep": 60.0, "task-step": "@9999#1"},
        {"task": "shardq.workflow", "task-run": "@9999"},
    ],
    ids=str,
)
def test_a_run_that_nobody_began_is_not_looked_for_in_thousands_before_it(
    client: shardq.Client, sums: Sums, monkeypatch: pytest.MonkeyPatch, headers: dict[str, Any]
) -> None:
    asked = [0]

    def holders(entries: EntryQueue, keys: Sequence[str]) -> Sequence[str | None]:
        asked.append(len(keys))
        return look(entries, keys)

    look = EntryQueue.holders
    monkeypatch.setattr(EntryQueue, "holders", holders)
    flow = sums.squares().send()
    TaskWorker(sums.tasks, client, threads=0, idle_exit=0).run()
    given = {name: flow.id + each if str(each).startswith("@") else each for name, each in headers.items()}
    client.queue("tasks").producer().send(ADDITION, headers=given)
    TaskWorker(sums.tasks, client, threads=0, idle_exit=0).run()
    assert max(asked) < 200
    assert flow.state == "done"


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
