"""First steps of a workflow are stored in bundles, under ids that are written down: once, whoever begins it again."""

from __future__ import annotations

import pytest

import shardq
from shardq.base.receipt import MessageId
from shardq.tasks import TaskFailed, Tasks, WorkflowResult, group
from shardq.tasks.advancing import start_workflow
from shardq.testing import ManualClock
from tests.tasks.sums import Sums

COUNT = 20


@pytest.fixture
def begun(sums: Sums, client: shardq.Client) -> tuple[WorkflowResult, shardq.Message]:
    """A group of which the first steps are sent, and the message that began it, which is not acked."""
    result = group(sums.add.signature(number, 0) for number in range(COUNT)).send()
    (message,) = client.queue("tasks").consumer().receive(1)
    start_workflow(sums.tasks.task_client, message)
    return result, message


def _places(client: shardq.Client) -> list[MessageId]:
    return [
        MessageId.parse(each.id) for each in client.queue("tasks").peek(100) if "task-step" in each.headers
    ]


def test_they_are_one_bundle_and_have_no_keys(
    begun: tuple[WorkflowResult, shardq.Message], client: shardq.Client
) -> None:
    waiting = [each for each in client.queue("tasks").peek(100) if "task-step" in each.headers]
    assert len(waiting) == COUNT
    assert {each.unique_key for each in waiting} == {None}
    assert len({each.bundle_id for each in _places(client)}) == 1


def test_their_states_are_seen_while_they_wait_and_run_and_when_they_have_ended(
    begun: tuple[WorkflowResult, shardq.Message],
    sums: Sums,
    client: shardq.Client,
    url: str,
    clock: ManualClock,
) -> None:
    result, message = begun
    message.ack()
    with shardq.connect(url, clock=clock) as there:
        app = Tasks()
        app.bind(there)
        looked = app.workflow(result.id)
        states = [{each.state for each in looked.steps()}, {looked.state}]
        batch = client.queue("tasks").consumer().receive(COUNT // 2)
        states += [{each.state for each in looked.steps()}, {looked.state}]
        batch.release(count=False)
        sums.tasks.drain()
        states += [{each.state for each in looked.steps()}, {looked.state}]
        assert states == [{"waiting"}, {"running"}, {"waiting", "running"}, {"running"}, {"done"}, {"done"}]
        assert looked.get(timeout=0) == list(range(COUNT))


def test_a_step_that_was_removed_is_missing(
    begun: tuple[WorkflowResult, shardq.Message], sums: Sums, client: shardq.Client
) -> None:
    result, message = begun
    message.ack()
    assert client.queue("tasks").remove(str(_places(client)[3]))
    sums.tasks.drain()
    assert result.state == "missing"
    assert [each.state for each in result.steps()].count("missing") == 1
    assert result.retry()
    sums.tasks.drain()
    assert result.get(timeout=0) == list(range(COUNT))
    assert max(sums.ran.values()) == 1


def test_who_begins_it_again_stores_none_twice(
    begun: tuple[WorkflowResult, shardq.Message], client: shardq.Client, url: str, clock: ManualClock
) -> None:
    before = _places(client)
    with shardq.connect(url, clock=clock) as there:
        other = Sums(there)
        start_workflow(other.tasks.task_client, begun[1])
        assert _places(client) == before
        client.queue("tasks").consumer().receive(7).ack()
        clock.advance(60)
        start_workflow(other.tasks.task_client, begun[1])
        assert _places(client) == before[7:]


@pytest.mark.parametrize("ended", [False, True])
def test_who_begins_it_again_after_long_stores_only_what_neither_waits_nor_has_ended(
    begun: tuple[WorkflowResult, shardq.Message],
    sums: Sums,
    client: shardq.Client,
    clock: ManualClock,
    *,
    ended: bool,
) -> None:
    result, _ = begun
    if ended:
        sums.tasks.drain()
    else:
        client.queue("tasks").remove(str(_places(client)[3]))
    clock.advance(3_600)
    sums.tasks.drain()  # the message that begins it is delivered again
    assert sums.ran == {f"{number}+0": 1 for number in range(COUNT)}
    assert result.get(timeout=0) == list(range(COUNT))
    assert client.queue("tasks").peek() == []


def test_steps_of_several_queues_with_delays_and_priorities_are_stored_as_they_say(
    client: shardq.Client, sums: Sums, clock: ManualClock
) -> None:
    urgent, late = sums.add.options(priority=0), sums.add.options(delay=60, queue="others")
    result = group(
        [each.signature(number, 0) for number in range(6) for each in (urgent, late, sums.add)]
    ).send()
    failing = group(sums.fail.signature(number) for number in range(9)).send()
    sums.tasks.drain()
    assert (sum(sums.ran.values()), result.state, failing.state) == (12 + 9, "running", "failed")
    assert {each.priority for each in client.queue("others").peek(100)} == {5}
    clock.advance(60)
    sums.tasks.drain()
    assert result.get(timeout=0) == [number for number in range(6) for _ in range(3)]
    with pytest.raises(TaskFailed):
        failing.get(timeout=0)
