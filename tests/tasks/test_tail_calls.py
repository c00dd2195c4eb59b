"""Tasks that return a call or a workflow: what that comes to is their result, once, whoever dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from click.testing import CliRunner

import shardq
from shardq.cli.main import main
from shardq.storage.opening import open_store
from shardq.storage.requests import Claim, Claimed
from shardq.tasks import (
    Result,
    Signature,
    TaskCancelled,
    TaskFailed,
    TaskWorker,
    Workflow,
    WorkflowResult,
    chain,
    chord,
    group,
    plans,
    workflow,
)
from shardq.tasks.entries import EntryQueue, key_of
from shardq.tasks.result_backend import RESULTS
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock, WrappedStore
from tests.dying_store import Died
from tests.tasks.dying import Dying
from tests.tasks.sums import StopsAfterOne, Sums


class Tails(Sums):
    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)
        self.broken = False

        @self.tasks.task
        def count(to: int, so_far: int = 0) -> int | Signature[Any]:
            self.ran[f"count {to}"] += 1
            return so_far if to == 0 else count.signature(to - 1, so_far + to)

        @self.tasks.task
        async def later(number: int) -> Signature[int]:
            self.ran["later"] += 1
            return self.tasks.tasks["add"].signature(number, 1)

        @self.tasks.task
        def spread(number: int) -> Workflow:
            self.ran["spread"] += 1
            return chord([add.signature(each, number) for each in range(5)], self.total.then())

        @self.tasks.task
        def many(number: int) -> Workflow:
            return group(add.signature(each, number) for each in range(5))

        @self.tasks.task(retry=1)
        def fragile(number: int) -> int:
            self.ran["fragile"] += 1
            if self.broken:
                raise ValueError(f"not {number}")
            return number

        @self.tasks.task
        def risky(number: int) -> Workflow:
            self.ran["risky"] += 1
            return chain(add.signature(number, 1), fragile.then())

        @self.tasks.task
        def listed() -> Workflow:
            self.ran["listed"] += 1
            return group(add.signature(each, 100 * self.attempt) for each in range(1 + 3 * self.attempt))

        add = self.add
        self.attempt, self.listed = 1, listed
        self.count, self.later, self.spread, self.many, self.risky = count, later, spread, many, risky


@pytest.fixture
def tails(client: shardq.Client, monkeypatch: pytest.MonkeyPatch) -> Tails:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    return Tails(client)


WAYS: list[tuple[Callable[[Any], Result[Any] | WorkflowResult], object]] = [
    (lambda tails: tails.count.send(0), 0),
    (lambda tails: tails.count.send(6), 21),
    (lambda tails: tails.later.send(6), 7),
    (lambda tails: tails.spread.send(1), 15),
    (lambda tails: tails.many.send(1), [1, 2, 3, 4, 5]),
    (lambda tails: chain(tails.add.signature(1, 1), tails.count.then(), tails.later.then()).send(), 4),
    (lambda tails: chain(tails.many.signature(1), tails.total.then(), tails.spread.then()).send(), 85),
    (
        lambda tails: group(
            tails.count.signature(2), tails.add.signature(1, 1), tails.many.signature(0)
        ).send(),
        [3, 2, [0, 1, 2, 3, 4]],
    ),
    (
        lambda tails: chord((tails.spread.signature(each) for each in range(5)), tails.total.then()).send(),
        100,
    ),
]


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize(("send", "value"), WAYS)
def test_the_result_is_that_of_what_was_returned(
    tails: Tails,
    client: shardq.Client,
    send: Callable[[Any], Result[Any] | WorkflowResult],
    value: object,
    threads: int,
) -> None:
    result = send(tails)
    TaskWorker(tails.tasks, client, threads=threads, idle_exit=0).run()
    assert (result.state, result.get(timeout=0)) == ("done", value)
    assert not result.cancel()
    assert client.queue("tasks").peek() == []


def ends_after_a_death(url: str, clock: ManualClock, tails: Tails, step: int, *, after: bool) -> bool:
    """Let a worker die at or after a step of the store, and others end its work; False if that step never came."""
    store = Dying(open_store(url, clock))
    store.calls_left, store.after = step, after
    with shardq.Client(store, retry_seconds=0) as deadly, suppress(Died):
        TaskWorker(Tails(deadly).tasks, deadly, threads=0, idle_exit=0).run()
    for _ in range(3):
        clock.advance(31)
        tails.tasks.drain()
    return store.calls_left < 0


@pytest.mark.long
@pytest.mark.parametrize("way", [2, 4, 6])
def test_wherever_a_worker_dies_it_comes_to_the_same_and_ends_once(
    url: str, clock: ManualClock, tails: Tails, way: int
) -> None:
    send, value = WAYS[way]
    for step in range(400):
        result = send(tails)
        died = ends_after_a_death(url, clock, tails, step, after=False)  # after a step is before the next one
        assert result.get(timeout=0) == value, step
        if not died:
            assert step > 5
            return
    pytest.fail("it never came to an end")


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_of_a_large_group_that_is_another_one_when_its_worker_has_died_one_is_run_as_a_whole(
    url: str, clock: ManualClock, tails: Tails, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 3)
    for step in range(400):
        tails.attempt, result = 2, tails.listed.send()
        died = ends_after_a_death(url, clock, tails, step, after=after)
        assert result.get(timeout=0) in (list(range(100, 104)), list(range(200, 207))), step
        if not died:
            assert step > 5
            return
    pytest.fail("it never came to an end")


@pytest.mark.parametrize("nth", range(1, 13))
def test_of_a_large_group_that_is_another_one_when_the_store_was_away_one_is_run_as_a_whole(
    url: str, clock: ManualClock, tails: Tails, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 3)
    tails.attempt, result = 0, tails.listed.send()
    plan = FaultPlan(faults=(Fault("append", nth, FaultKind.UNAVAILABLE),))
    with shardq.Client(FaultyStore(open_store(url, clock), plan), retry_seconds=0) as client:
        TaskWorker(Tails(client).tasks, client, threads=0, idle_exit=0).run()
    for _ in range(4):
        clock.advance(31)
        tails.tasks.drain()
    assert result.get(timeout=0) in (list(range(100, 104)), [0])


def test_a_failure_in_it_is_that_of_the_task_and_a_retry_goes_on_where_it_failed(tails: Tails) -> None:
    tails.broken = True
    alone, flow = tails.risky.send(1), chain(tails.add.signature(1, 1), tails.risky.then()).send()
    tails.tasks.drain()
    for result in (alone, flow):
        with pytest.raises(TaskFailed, match=r"fragile\(number=.*ValueError: not"):
            result.get(timeout=0)
    tails.broken = False
    assert flow.retry()
    tails.tasks.drain()
    assert flow.get(timeout=0) == 3
    assert (tails.ran["risky"], tails.ran["fragile"], tails.ran["2+1"]) == (2, 3, 1)


@pytest.mark.parametrize("by", ["result", "workflow", "command"])
@pytest.mark.usefixtures("tails")
def test_it_is_seen_while_it_runs_and_is_cancelled_with_the_task(url: str, by: str) -> None:
    hooks = StopsAfterOne()
    with shardq.connect(url, hooks=hooks) as client:
        _cancel(Tails(client), client, hooks, url, by)


def _cancel(tails: Tails, client: shardq.Client, hooks: StopsAfterOne, url: str, by: str) -> None:
    result = tails.many.options(keep_result=60).send(1)
    assert result.state == "waiting"
    hooks.worker = TaskWorker(tails.tasks, client, threads=0, idle_exit=0, batch=1)
    assert hooks.worker.run().worked == 1
    assert result.state == "waiting"
    shown = CliRunner().invoke(main, ["--url", url, "task", "show", result.id])
    assert "bucket" in shown.stdout, shown.output
    if by == "result":
        assert result.cancel()
    elif by == "workflow":
        assert tails.tasks.workflow(result.id).cancel()
    else:
        assert CliRunner().invoke(main, ["--url", url, "task", "cancel", result.id]).exit_code == 0
    with pytest.raises(TaskCancelled):
        result.get(timeout=0)
    tails.tasks.drain()
    assert not any("+" in each for each in tails.ran)


def test_who_waits_from_the_start_gets_the_result(tails: Tails, client: shardq.Client) -> None:
    result = tails.count.send(5)
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(result.get(timeout=60)))
    waiting.start()
    TaskWorker(tails.tasks, client, threads=2, idle_exit=0).run()
    waiting.join()
    assert found == [15]


def test_a_value_of_any_size_and_a_task_without_a_result(tails: Tails) -> None:
    tasks = tails.tasks

    @tasks.task
    def large(size: int) -> bytes:
        return bytes(size)

    @tasks.task
    def one(size: int) -> Signature[bytes]:
        return large.signature(size)

    @tasks.task
    def two(size: int) -> Workflow:
        return group(large.signature(size), large.signature(1))

    first, second = one.send(2_500_000), two.send(2_500_000)
    tails.count.options(keep_result=0).send(3)
    tasks.drain()
    assert len(first.get(timeout=0)) == 2_500_000
    assert [len(each) for each in second.get(timeout=0)] == [2_500_000, 1]
    assert [tails.ran[f"count {each}"] for each in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("lost", ["value", "entry"])
def test_what_is_kept_no_longer_when_it_comes_to_its_end_fails_the_task_and_ends_no_worker(
    tails: Tails, client: shardq.Client, monkeypatch: pytest.MonkeyPatch, lost: str, threads: int
) -> None:
    tasks, results = tails.tasks, tails.tasks.task_client.results
    first = tasks.task(name="large", queue="first")(lambda: bytes(2_500_000))
    read = results.read

    def lose() -> int:
        EntryQueue(client, RESULTS).remove(key_of("v", f"{result.id}#0"))
        return 1

    second = tasks.task(name="lose", queue="second")(lose)

    @tasks.task(queue="callers")
    def begin() -> Signature[bytes] | Workflow:
        return group(first.signature(), second.signature()) if lost == "value" else first.signature()

    result = begin.send()
    if lost == "entry":
        monkeypatch.setattr(results, "read", lambda task: None if task.endswith("#0") else read(task))
    for queue in ("callers", "first", "second"):
        sound = tails.add.options(queue=queue).send(1, 2)
        client.create_queue(queue, exist_ok=True)
        TaskWorker(tasks, client, queues=[queue], threads=threads, idle_exit=0).run()
        assert sound.get(timeout=0) == 3
    with pytest.raises(TaskFailed, match="is not kept any more"):
        result.get(timeout=0)


def test_what_cannot_be_sent_in_place_of_a_value_fails_the_task(tails: Tails) -> None:
    tasks = tails.tasks
    tasks.task_client.client.create_queue("small", max_message_bytes=1_000)

    @tasks.task
    def keyed() -> Any:
        return tails.add.options(unique_key="x").signature(1, 2)

    @tasks.task
    def rest() -> Any:
        return tails.add.then(1)

    @tasks.task(queue="small")
    def text(given: str) -> str:
        return given

    @tasks.task
    def too_large() -> Any:
        return text.signature("x" * 5_000)

    deepest, deeper = tails.count.send(30), tails.count.send(31)
    tasks.drain()
    assert deepest.get(timeout=0) == sum(range(31))
    with pytest.raises(TaskFailed, match="as 30 before it did"):
        deeper.get(timeout=0)
    for task, said in ((keyed, "unique_key='x' of step"), (rest, "there is none"), (too_large, "bytes")):
        result = task.send()
        tasks.drain()
        with pytest.raises(TaskFailed, match=said):
            result.get(timeout=0)


@pytest.mark.parametrize("deliveries", [1, 2, 5])
@pytest.mark.parametrize("in_chain", [False, True])
def test_the_function_runs_once_while_the_queue_of_what_it_returned_takes_none(
    tails: Tails, client: shardq.Client, clock: ManualClock, deliveries: int, in_chain: bool
) -> None:
    client.create_queue("callers", max_deliveries=deliveries)
    paused = client.create_queue("tasks", sends_paused=True)
    spread = tails.spread.options(queue="callers")
    result = chain(spread.signature(1)).send() if in_chain else spread.send(1)
    for _ in range(7):
        assert tails.tasks.drain(queues=["callers"]).snoozed
        clock.advance(6)
    assert tails.ran["spread"] == 1
    paused.alter(sends_paused=False)
    tails.tasks.drain(queues=["callers", "tasks"])
    assert result.get(timeout=0) == 15
    assert tails.ran["spread"] == 1


@pytest.mark.parametrize("threads", [0, 2])
def test_the_function_runs_once_also_where_the_next_task_of_its_group_cannot_begin(
    tails: Tails, client: shardq.Client, url: str, clock: ManualClock, threads: int
) -> None:
    client.create_queue("callers", max_deliveries=5)
    paused = client.create_queue("tasks", sends_paused=True)
    spread = tails.spread.options(queue="callers", group="customer-42")
    results = [spread.send(1), spread.send(2)]
    client.semaphore("doors", permits=10)

    class OnePermit(WrappedStore):
        """Gives one permit, and is away where the permits are after that."""

        left = 1

        def claim(self, request: Claim) -> Claimed:
            if request.shard.queue != "_shardq/permits/doors":
                return super().claim(request)
            if not self.left:
                raise shardq.StoreUnavailable("where the permits are")
            claimed = super().claim(request)
            self.left -= len(claimed.slices)
            return claimed

    store = OnePermit(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as worked, tails.tasks.bound(worked):
        for _ in range(3):
            store.left = 1
            worker = TaskWorker(
                tails.tasks, worked, queues=["callers"], threads=threads, idle_exit=0, semaphore="doors"
            )
            assert worker.run().snoozed == 1
            assert not store.left
            clock.advance(6)
    assert tails.ran["spread"] == 1
    paused.alter(sends_paused=False)
    tails.tasks.drain(queues=["callers", "tasks"])
    assert [result.get(timeout=0) for result in results] == [15, 20]
    assert tails.ran["spread"] == 2


def test_a_call_without_a_store_runs_what_is_returned_and_refuses_a_workflow(tails: Tails) -> None:
    assert (tails.count.call(3), tails.later.call(3)) == (6, 4)
    with pytest.raises(shardq.InvalidSetting, match=r"returned a workflow, which call\(\) cannot run"):
        tails.spread.call(1)
