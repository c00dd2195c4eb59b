"""Tasks and workflows of queues with every name that a queue may have, such as one with an @."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Collection

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.tasks import TaskFailed, Tasks, chain, group, plans, task_client
from shardq.tasks.entries import in_run, is_step, key_of, run_of, runs_of

NAMES = ["orders", "team@eu", "a@1", "mail/x@2.y-z_@3"]


@pytest.fixture(params=NAMES)
def queue(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_workflow_runs_fails_is_retried_listed_and_cancelled(
    url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    broken = [True]
    with shardq.connect(url) as client:
        client.create_queue("tasks")
        tasks = Tasks()
        tasks.bind(client)

        @tasks.task(queue=queue, retry=1)
        def add(first: int, second: int) -> int:
            if broken[0] and second == 9:
                raise ValueError("broken")
            return first + second

        alone = add.send(1, 2)
        flow = chain(
            group(add.signature(1, 1), add.signature(2, 2)), add.options(queue="tasks").signature(1, 9)
        )
        result = flow.send(name="flow")
        late = add.options(delay=600).send(1, 2)
        tasks.drain(queues=[queue, "tasks"])
        assert alone.get(timeout=0) == 3
        assert late.cancel()
        with pytest.raises(TaskFailed, match="broken"):
            result.get(timeout=0)
        shown = CliRunner().invoke(main, ["--url", url, "task", "show", f"{result.id}#2"])
        assert (shown.exit_code, "broken" in shown.stdout) == (0, True)
        broken.clear()
        broken.append(False)
        again = CliRunner().invoke(main, ["--url", url, "task", "retry", result.id])
        assert (again.exit_code, "runs again" in again.stderr) == (0, True)
        tasks.drain(queues=[queue, "tasks"])
        assert tasks.workflow(result.id).get(timeout=0) == 10
        (listed,) = tasks.workflows(name="flow")
        assert (listed.state, listed.queue, listed.run) == ("done", queue, 1)
        assert tasks.workflow(f"{result.id}@1").state == "done"


def test_ids_and_keys_say_the_run_and_the_path_and_never_the_name(queue: str) -> None:
    first = f"{queue}:0:3:{0:032x}:7"
    assert run_of(first) == 0
    assert in_run(first, 2) == f"{first}@2"
    assert in_run(f"{first}@2#3#17", 0) == f"{first}#3#17"
    assert run_of(f"{first}@12#3") == 12
    assert runs_of(f"{first}@1#3") == [f"{first}@1#3", f"{first}#3"]
    assert key_of("r", f"{first}@1#3#17") == f"r-{0:032x}-7-3-17@1"
    assert is_step(f"{first}@1#3")
    assert not any(
        map(is_step, (first, f"{first}@1", f"{first}#", f"{first}#x", f"{first}@x#1", f"#{first}", 7))
    )


def test_an_app_that_sends_to_ever_new_queues_remembers_some_of_them(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_client, "MOST_QUEUES", 3)
    opened = list[weakref.ref[object]]()
    queue_of = task_client.TaskClient.queue

    def noted(self: task_client.TaskClient, name: str, tasks: Collection[str]) -> shardq.Queue:
        queue = queue_of(self, name, tasks)
        opened.append(weakref.ref(queue))
        return queue

    monkeypatch.setattr(task_client.TaskClient, "queue", noted)

    @tasks.task
    def work() -> int:
        return 1

    first = work.options(queue="user-0").send()
    for number in range(1, 10):
        work.options(queue=f"user-{number}").send()
    gc.collect()
    assert len(opened) == 10
    assert sum(each() is not None for each in opened) <= 3
    again = work.options(queue="user-0").send()
    tasks.drain(queues=["user-0"])
    assert (first.get(timeout=0), again.get(timeout=0)) == (1, 1)
