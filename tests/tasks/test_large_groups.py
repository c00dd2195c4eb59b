"""Groups that are cut into buckets: as other groups, at a cost that grows with their number, whatever dies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.tasks import (
    CurrentTask,
    Middleware,
    ResultMissing,
    ResultTimeout,
    TaskCancelled,
    TaskFailed,
    Tasks,
    TaskWorker,
    advancing,
    chain,
    chord,
    group,
    plans,
    workflow,
)
from shardq.tasks.advancing import start_workflow
from shardq.testing import ManualClock, WrappedStore
from tests.dying_store import Died
from tests.tasks.dying import Dying
from tests.tasks.sums import Sums


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of two, whose steps are sent in a bundle."""
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8, 9, 17])
@pytest.mark.parametrize("threads", [0, 4])
def test_a_large_group_gives_its_values_in_order_and_what_follows_runs_once(
    sums: Sums, count: int, threads: int
) -> None:
    result = chord((sums.add.signature(number, 0) for number in range(count)), sums.total.then()).send()
    plain = group(*(sums.add.signature(number, 1) for number in range(count))).send()
    states = [result.state]
    worker = TaskWorker(sums.tasks, sums.tasks.task_client.client, threads=threads, idle_exit=0)
    assert worker.run().dead_lettered == 0
    assert result.get(timeout=0) == sum(range(count))
    assert plain.get(timeout=0) == list(range(1, count + 1))
    assert sums.ran[f"total {list(range(count))}"] == 1
    assert max(sums.ran.values()) == 1
    assert [*states, result.state, plain.state] == ["waiting", "done", "done"]
    assert sums.tasks.task_client.client.queue("tasks").peek() == []


def test_a_group_is_made_of_an_iterable_too(sums: Sums) -> None:
    result = group(sums.add.signature(number, 1) for number in range(5)).send()
    one = group([sums.add.signature(5, 5)]).send()
    mapped = sums.fail.options(queue="never").map(iter(range(3)))
    sums.tasks.drain()
    assert (result.get(timeout=0), one.get(timeout=0)) == ([1, 2, 3, 4, 5], [10])
    assert len(mapped.steps) == 2
    wrong: list[Any] = ["text", [7], 7]
    for parts in wrong:
        with pytest.raises(shardq.InvalidSetting):
            group(parts)


def test_steps_of_a_large_group_take_what_came_before_and_wait_for_each_other(sums: Sums) -> None:
    result = chain(
        sums.add.signature(1, 1),
        group(*(chain(sums.add.then(number), sums.add.then(100)) for number in range(5))),
        group(sums.total.then(), chain(sums.total.then(), sums.add.then(1)), sums.total.then()),
    ).send()
    sums.tasks.drain()
    everything = sum(2 + number + 100 for number in range(5))
    assert result.get(timeout=0) == [everything, everything + 1, everything]
    assert asyncio.run(_awaited(result)) == [everything, everything + 1, everything]


async def _awaited(result: Any) -> object:
    return await result


def test_a_large_group_of_groups_is_one_list(sums: Sums) -> None:
    inner = [group(*(sums.add.signature(10 * number, each) for each in range(3))) for number in range(3)]
    result = group(*inner, sums.add.signature(99, 0)).send()
    sums.tasks.drain()
    assert result.get(timeout=0) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 99]


def test_a_large_group_can_be_looked_at_and_read_in_another_program(
    sums: Sums, url: str, clock: ManualClock
) -> None:
    sent = group(*(sums.add.signature(number, 0) for number in range(7))).send(delay=5)
    with shardq.connect(url, clock=clock) as there:
        app = Tasks()
        app.bind(there)
        result = app.workflow(sent.id)
        states = [result.state]
        with pytest.raises(ResultMissing):
            list(result.values())
        clock.advance(5)
        sums.tasks.drain()
        assert [*states, result.state] == ["waiting", "done"]
        assert list(result.values()) == list(range(7))


def test_a_failure_in_a_bucket_is_that_of_what_follows_and_the_other_steps_run(sums: Sums) -> None:
    parts = [sums.add.signature(number, 0) for number in range(4)]
    result = chord(
        [*parts, chain(sums.add.signature(5, 0), sums.fail.then()), *parts], sums.total.then()
    ).send()
    sums.tasks.drain()
    with pytest.raises(TaskFailed, match="fail\\(number=5\\), failed: ValueError: not 5"):
        result.get(timeout=0)
    assert result.state == "failed"
    assert sums.ran == {"5+0": 1, "fail": 1} | {f"{number}+0": 2 for number in range(4)}


def test_cancelling_a_large_group_stops_all_that_has_not_run(
    sums: Sums, client: shardq.Client, clock: ManualClock
) -> None:
    parts = [sums.add.options(delay=9 * (number // 5)).signature(number, 0) for number in range(10)]
    never, begun, done = (chord(parts, sums.total.then()).send(delay=delay) for delay in (5, 0, 0))
    assert never.cancel()
    sums.tasks.drain()
    assert begun.cancel()
    assert begun.state == never.state == "cancelled"
    clock.advance(9)
    sums.tasks.drain()
    assert not done.cancel()
    assert sums.ran.total() == 16
    for result in (never, begun):
        with pytest.raises(TaskCancelled):
            result.get(timeout=0)
    assert client.queue("tasks").peek() == []


def test_a_large_group_is_waited_for_while_any_of_it_may_come(
    sums: Sums, client: shardq.Client, clock: ManualClock
) -> None:
    parts = [sums.add.options(delay=9).signature(number, 0) for number in range(5)]
    alone, followed = group(*parts).send(), chord(parts, sums.total.then()).send()
    late = chain(
        sums.add.options(delay=9).signature(0, 0), group(*(sums.add.then(each) for each in range(5)))
    ).send()
    for _ in range(2):
        for result in (alone, followed, late):
            with pytest.raises(ResultTimeout):
                result.get(timeout=0)
        sums.tasks.drain()
    assert [each.state for each in (alone, followed, late)] == ["running"] * 3
    clock.advance(9)
    sums.tasks.drain()
    assert [each.get(timeout=0) for each in (alone, followed, late)] == [list(range(5)), 10, list(range(5))]


class Moving(WrappedStore):
    """Lets something happen before each of some requests."""

    happen: Iterator[Callable[[], object]] = iter(())

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        next(self.happen, lambda: None)()
        return super().call(method, do, *args, **kwargs)


class One(Middleware):
    """Ends a worker after a task."""

    worker: TaskWorker | None = None

    def after(self, task: CurrentTask, value: object, error: BaseException | None) -> None:
        assert self.worker is not None
        self.worker.stop()


@pytest.mark.parametrize("requests", range(8, 13))
def test_a_workflow_that_goes_on_while_it_is_looked_at_is_never_missing(
    sums: Sums, url: str, clock: ManualClock, requests: int
) -> None:
    one = One()
    sums.tasks.middleware = (one,)

    def work(app: Tasks) -> None:
        with suppress(Died):
            one.worker = TaskWorker(app, app.task_client.client, threads=0, batch=1, idle_exit=0)
            one.worker.run()

    dying, looking = Dying(open_store(url, clock)), Moving(open_store(url, clock))
    with shardq.Client(dying, retry_seconds=0) as deadly, shardq.Client(looking) as client:
        mortal, app = Sums(deadly).tasks, Tasks()
        app.bind(client)
        for calls in range(
            2, 12, 2
        ):  # a worker dies before it writes the entry, or before it sends what comes next
            result = chain(sums.add.signature(1, 1), sums.add.then(1), sums.add.then(1)).send()
            with sums.tasks.task_client.client.queue("tasks").consumer() as consumer:
                (message,) = consumer.receive(1)
                start_workflow(sums.tasks.task_client, message)
                message.ack()
            dying.calls_left = calls
            looking.happen = iter(
                [lambda: None] * requests + [lambda: work(sums.tasks), lambda: work(mortal)]
            )
            assert app.workflow(result.id).state != "missing"
            dying.calls_left, looking.happen = None, iter(())
            clock.advance(31)
            sums.tasks.middleware = ()
            sums.tasks.drain()
            sums.tasks.middleware = (one,)
            assert result.get(timeout=0) == 4


def test_a_step_of_a_large_group_that_was_removed_makes_it_missing(sums: Sums, client: shardq.Client) -> None:
    result = chord(
        [*(sums.add.signature(n, 0) for n in range(4)), sums.fail.signature(1)], sums.total.then()
    ).send()
    sums.tasks.drain(queues=["tasks"])
    states = [result.state]
    client.queue("others").purge()
    assert [*states, result.state] == ["running", "missing"]


def test_values_that_are_too_many_for_a_list_are_refused_to_a_step_and_can_be_read_one_by_one(
    sums: Sums,
) -> None:
    @sums.tasks.task
    def large(number: int) -> bytes:
        return bytes([number]) * 300_000

    @sums.tasks.task
    def size(parts: list[bytes]) -> int:
        return sum(map(len, parts))

    result = group(*(large.signature(number) for number in range(5))).send()
    taken = chord((large.signature(number) for number in range(5)), size.then()).send()
    sums.tasks.drain()
    assert [value[0] for value in result.values()] == list(range(5))
    assert taken.get(timeout=0) == 1_500_000


def test_a_bucket_is_closed_early_when_its_arguments_are_large(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 100)

    @sums.tasks.task
    def size(text: str) -> int:
        return len(text)

    result = group(*(size.signature("x" * 100_000) for _ in range(5))).send()
    sums.tasks.drain()
    assert result.get(timeout=0) == [100_000] * 5
    with pytest.raises(shardq.MessageTooLarge, match="the arguments of the steps of a workflow that wait"):
        chain(size.signature("x" * 600_000), size.signature("x" * 600_000)).send()


class Counting(WrappedStore):
    """Counts requests, and notes the keys that were asked for with them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.calls = Counter[str]()
        self.most = 0

    def call(self, method: str, do: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls[method] += 1
        if method == "compare_and_set_keys":
            self.calls["keys"] += len(args[1])
            self.most = max(self.most, len(args[1]))
        return super().call(method, do, *args, **kwargs)


def test_the_cost_of_a_group_grows_with_the_number_of_its_steps_only(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 8)
    costs: list[float] = []
    for count in (64, 256):  # a bucket of buckets, and one of these more
        store = Counting(open_store(url, clock))
        with shardq.Client(store) as client:
            sums = Sums(client)
            result = chord((sums.add.signature(each, 0) for each in range(count)), sums.total.then()).send()
            sending = store.calls.total()
            assert TaskWorker(sums.tasks, client, threads=2, idle_exit=0).run().dead_lettered == 0
            assert result.get(timeout=0) == sum(range(count))
            assert sending < 40
            assert store.most <= 1_000
            costs.append(store.calls.total() / count)
    assert costs[1] < 1.25 * costs[0]


@pytest.fixture
def dying(url: str, clock: ManualClock) -> Iterator[tuple[Dying, Sums]]:
    store = Dying(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as client:
        yield store, Sums(client)


@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_sender_dies_it_has_begun_all_of_a_large_group_or_nothing(
    dying: tuple[Dying, Sums], sums: Sums, *, after: bool
) -> None:
    store, deadly = dying
    for step in range(50):
        sums.ran.clear()
        store.calls_left, store.after = step, after
        try:
            chord((deadly.add.signature(each, 0) for each in range(5)), deadly.total.then()).send()
        except Died:
            ended = False
        else:
            ended = True
        store.calls_left = None
        sums.tasks.drain()
        assert sums.ran in ({}, {f"{each}+0": 1 for each in range(5)} | {"total [0, 1, 2, 3, 4]": 1})
        assert sums.ran or not ended
        if ended:
            break
    assert 2 < step < 49


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_worker_dies_a_large_group_ends_and_what_follows_runs_once(
    dying: tuple[Dying, Sums], sums: Sums, clock: ManualClock, *, after: bool
) -> None:
    store, deadly = dying
    for step in range(300):
        sums.ran.clear()
        deadly.ran.clear()
        result = chord((sums.add.signature(each, 0) for each in range(5)), sums.total.then()).send()
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
        assert result.get(timeout=0) == 10
        ran = sums.ran + deadly.ran
        assert set(ran) == {*(f"{each}+0" for each in range(5)), "total [0, 1, 2, 3, 4]"}
        assert max(ran.values()) <= 2
        assert sums.ran["total [0, 1, 2, 3, 4]"] == 0 or not decided
        assert sums.tasks.task_client.client.queue("tasks").peek() == []
    else:
        raise AssertionError("it never came to an end")
    assert step > 20


@pytest.mark.long
def test_five_thousand_steps_end_and_what_follows_takes_all_of_their_values(
    sums: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 50)
    taken: list[int] = []

    @sums.tasks.task
    def count(numbers: list[int]) -> int:
        taken.extend(numbers)
        return len(numbers)

    result = chord((sums.add.signature(each, 0) for each in range(5_000)), count.then()).send()
    report = TaskWorker(sums.tasks, sums.tasks.task_client.client, threads=4, idle_exit=0).run()
    assert report.dead_lettered == 0
    assert result.get(timeout=0) == 5_000
    assert taken == list(range(5_000))
    assert max(sums.ran.values()) == 1


@pytest.mark.parametrize("calls", [3, 5, 9])
@pytest.mark.parametrize("kept", [0, 250_000])
def test_a_group_of_any_size_can_be_awaited(
    sums: Sums, monkeypatch: pytest.MonkeyPatch, calls: int, kept: int
) -> None:
    monkeypatch.setattr(advancing, "KEPT_BYTES", kept)
    result = group(sums.add.signature(each, 1) for each in range(calls)).send()
    sums.tasks.drain()

    async def wait() -> object:
        return await asyncio.wait_for(result, 60)

    assert asyncio.run(wait()) == result.get(timeout=0) == list(range(1, calls + 1))
