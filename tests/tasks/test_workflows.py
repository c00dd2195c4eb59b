"""Workflows: steps that wait for others, and are sent once, whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.tasks import (
    ArgumentsRejected,
    ResultMissing,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    Tasks,
    TaskWorker,
    WorkflowResult,
    chain,
    chord,
    group,
)
from shardq.testing import ManualClock
from tests.dying_store import Died
from tests.tasks.dying import Dying
from tests.tasks.sums import Sums


def test_each_step_of_a_chain_takes_what_the_one_before_returned(sums: Sums) -> None:
    result = chain(sums.add.signature(1, 2), sums.add.then(10), sums.add.then(second=100)).send()
    assert [each.state for each in result.results] == ["waiting"]
    sums.tasks.drain()
    assert result.get(timeout=0) == 113
    assert sums.ran == {"1+2": 1, "3+10": 1, "13+100": 1}


def test_workflows_are_put_together_of_workflows(sums: Sums) -> None:
    first, second = sums.squares().send(), sums.squares().send()
    sums.tasks.drain()
    assert first.get(timeout=0) == second.get(timeout=0) == [13, 17]
    assert set(sums.ran.values()) == {2}

    async def wait() -> list[int]:
        return await first

    assert asyncio.run(wait()) == [13, 17]


def test_what_follows_a_group_runs_once_when_all_of_it_is_done(sums: Sums) -> None:
    result = chord([sums.add.signature(number, 0) for number in range(20)], sums.total.then()).send()
    worker = TaskWorker(sums.tasks, sums.tasks.task_client.client, threads=8, idle_exit=0)
    assert worker.run().worked == 22
    assert result.get(timeout=0) == sum(range(20))
    assert sums.ran[f"total {list(range(20))}"] == 1


@pytest.mark.parametrize("many", [1, 2])
def test_who_waits_too_long_is_told_how_long_that_was(sums: Sums, many: int) -> None:
    result = group(sums.add.signature(number, 0) for number in range(many)).send()
    with pytest.raises(
        ResultTimeout, match=rf"^workflow {result.id} has not ended within 0.05 seconds: ask again"
    ):
        result.get(timeout=0.05)


def test_a_step_that_fails_for_good_is_the_failure_of_all_that_wait_for_it(sums: Sums) -> None:
    result = chain(
        group(sums.add.signature(1, 1), chain(sums.add.signature(1, 2), sums.fail.then())),
        sums.total.then(),
        sums.add.then(1),
    ).send()
    sums.tasks.drain()
    with pytest.raises(
        TaskFailed, match="StepFailed: step 2, fail\\(number=3\\), failed: ValueError: not 3"
    ) as raised:
        result.get(timeout=0)
    assert "raise ValueError" in raised.value.failure.traceback
    assert sums.ran == {"1+1": 1, "1+2": 1, "fail": 1}


def test_a_workflow_that_is_cancelled_runs_no_further_step(
    sums: Sums, client: shardq.Client, clock: ManualClock
) -> None:
    never, begun, done = sums.squares().send(), sums.squares().send(delay=5), sums.squares().send()
    assert never.cancel()
    sums.tasks.drain()
    assert sums.ran.total() == 8
    assert not done.cancel()
    assert begun.cancel()
    clock.advance(5)
    sums.tasks.drain()
    assert sums.ran.total() == 8
    for result in (never, begun):
        with pytest.raises(TaskCancelled):
            result.get(timeout=0)
    assert client.queue("tasks").peek() == []


def test_a_workflow_is_known_by_its_id_in_another_program(sums: Sums, url: str, clock: ManualClock) -> None:
    ids = [sums.squares().send(delay=delay).id for delay in (0, 0, 9)]
    failing = chain(sums.add.signature(1, 1), sums.fail.then()).send().id
    with shardq.connect(url, clock=clock) as there:
        app = Tasks()
        app.bind(there)
        first, second, late = (app.workflow(each) for each in ids)
        assert [each.state for each in (first, second, late)] == ["waiting"] * 3
        assert late.cancel()
        sums.tasks.drain(queues=["tasks"])
        assert (first.state, late.state) == ("done", "cancelled")
        assert first.get(timeout=0) == [13, 17]
        assert asyncio.run(_awaited(second)) == [13, 17]
        assert not first.cancel()
        failed = app.workflow(failing)
        states = [failed.state]
        sums.tasks.drain()
        assert [*states, failed.state] == ["running", "failed"]
        with pytest.raises(TaskFailed, match="not 2"):
            failed.get(timeout=0)


async def _awaited(result: WorkflowResult) -> object:
    return await result


def test_an_id_of_no_workflow_is_missing_or_refused(sums: Sums) -> None:
    task = sums.add.send(1, 1)
    unknown = sums.tasks.workflow(task.id)
    assert unknown.state == "missing"
    assert not unknown.cancel()
    with pytest.raises(ResultMissing, match="there is no workflow"):
        unknown.get(timeout=0)
    with pytest.raises(shardq.InvalidReceipt, match="is the id of a step"):
        sums.tasks.workflow(f"{task.id}#0")
    with pytest.raises(shardq.InvalidReceipt, match="is not a message id"):
        sums.tasks.workflow("tasks")


def test_steps_that_cannot_be_sent_are_refused_before_anything_is_stored(
    sums: Sums, client: shardq.Client
) -> None:
    with pytest.raises(ArgumentsRejected, match="waits for the argument 'first'"):
        sums.add.then(1).send()
    with pytest.raises(ArgumentsRejected, match="does not take these arguments"):
        sums.add.then(1, 2)
    with pytest.raises(shardq.InvalidSetting, match="step 'add' takes the result of a step before it"):
        chain(sums.add.then(1), sums.add.then(1)).send()
    with pytest.raises(shardq.InvalidSetting, match="unique_key='k' of step 'add'"):
        chain(sums.add.options(unique_key="k").signature(1, 1))
    with pytest.raises(shardq.InvalidSetting, match="is not a step"):
        group(sums.add)  # type: ignore[call-overload]
    with pytest.raises(shardq.InvalidMessage, match="priority"):
        chain(sums.add.signature(1, 1), sums.add.options(priority=99).then(1)).send()
    assert client.queues() == ()


def test_a_queue_that_takes_no_messages_puts_a_workflow_off_and_nothing_else(
    sums: Sums, client: shardq.Client, clock: ManualClock
) -> None:
    client.create_queue("others").pause(sends=True)
    result = chain(sums.add.signature(1, 2), sums.fail.then()).send()
    other = sums.add.send(5, 5)
    sums.tasks.drain(queues=["tasks"])
    assert other.get(timeout=0) == 10
    assert [each.state for each in result.results] == ["waiting"]
    client.queue("others").resume()
    clock.advance(5)
    sums.tasks.drain()
    assert [each.state for each in result.results] == ["failed"]
    assert sums.ran == {"1+2": 1, "5+5": 1, "fail": 1}


def test_a_step_whose_message_was_removed_is_missing_and_so_is_what_waits_for_it(
    sums: Sums, client: shardq.Client
) -> None:
    result = chain(sums.add.signature(1, 2), sums.fail.then(), sums.add.then(1)).send()
    sums.tasks.drain(queues=["tasks"])
    assert result.results[0].state == "waiting"
    client.create_queue("others", exist_ok=True).purge()
    with pytest.raises(ResultMissing):
        result.get(timeout=0)


@pytest.mark.parametrize("begun", [False, True])
def test_what_was_purged_of_a_workflow_cannot_be_cancelled_and_what_is_left_can(
    sums: Sums, client: shardq.Client, *, begun: bool
) -> None:
    later = sums.add.options(queue="others", delay=600)
    gone = chain(sums.add.signature(0, 0), later.then(1)).send()
    rest = group(sums.add.options(delay=600).signature(1, 1), later.signature(2, 2)).send()
    if begun:
        sums.tasks.drain(queues=["tasks"])
    for queue in ["others"] if begun else ["others", "tasks"]:
        client.create_queue(queue, exist_ok=True).purge()
    assert gone.state == "missing"
    assert not gone.cancel()
    assert not sums.tasks.workflow(gone.id).cancel()
    assert gone.state == "missing"
    assert (rest.cancel(), rest.cancel(), rest.state) == (
        (True, True, "cancelled") if begun else (False, False, "missing")
    )


def test_a_workflow_that_was_cancelled_before_it_began_can_be_cancelled_again(sums: Sums) -> None:
    result = chain(sums.add.signature(1, 1), sums.add.then(1)).send()
    assert (result.cancel(), result.cancel(), result.state) == (True, True, "cancelled")


@pytest.fixture
def dying(url: str, clock: ManualClock) -> Iterator[tuple[Dying, Sums]]:
    store = Dying(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as client:
        yield store, Sums(client)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_worker_dies_a_workflow_ends_and_no_step_is_run_again_that_was_decided(
    dying: tuple[Dying, Sums], sums: Sums, clock: ManualClock, *, after: bool
) -> None:
    store, deadly = dying
    for step in range(200):
        sums.ran.clear()
        deadly.ran.clear()
        result = chord([sums.add.signature(1, 1), sums.add.signature(2, 2)], sums.total.then()).send()
        store.calls_left, store.after = step, after
        try:
            deadly.tasks.drain()
        except Died:
            pass
        else:
            break
        store.calls_left = None
        decided = [each.state for each in result.results] == ["done"]
        for _ in range(3):
            clock.advance(31)
            sums.tasks.drain()
        assert result.get(timeout=0) == 6
        ran = sums.ran + deadly.ran
        assert set(ran) == {"1+1", "2+2", "total [2, 4]"}
        assert max(ran.values()) <= 2
        assert sums.ran["total [2, 4]"] == 0 or not decided
        assert sums.tasks.task_client.client.queue("tasks").peek() == []
    else:
        raise AssertionError("it never came to an end")
    assert step > 10
