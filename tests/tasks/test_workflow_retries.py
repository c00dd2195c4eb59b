"""Workflows that are retried: what is done stays, the rest runs again, once for each call that finds a failure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.tasks import (
    ResultMissing,
    TaskFailed,
    TaskWorker,
    Workflow,
    chain,
    chord,
    group,
    workflow,
    workflow_result,
)
from shardq.tasks.workflow import Part
from shardq.testing import ManualClock
from tests.dying_store import Died
from tests.tasks.dying import Dying
from tests.tasks.sums import Sums


class Fragile(Sums):
    """An app one of whose tasks fails while it is told to."""

    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)
        self.broken = True

        @self.tasks.task(retry=1, queue="others")
        def fragile(number: int) -> int:
            self.ran[f"fragile {number}"] += 1
            if self.broken:
                raise ValueError(f"not {number}")
            return number

        self.fragile = fragile

    def small(self) -> Workflow:
        """A chord one of whose steps fails."""
        parts: list[Part] = [self.add.signature(1, 1), chain(self.add.signature(2, 2), self.fragile.then())]
        return chain(chord(parts, self.total.then()), self.add.then(100))

    def large(self) -> Workflow:
        """A chord of buckets of buckets."""
        parts = [
            self.fragile.signature(each) if each == 4 else self.add.signature(each, 0) for each in range(9)
        ]
        return chord(parts, self.total.then())


@pytest.fixture
def fragile(client: shardq.Client, monkeypatch: pytest.MonkeyPatch) -> Fragile:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    return Fragile(client)


@pytest.mark.parametrize("threads", [0, 4])
@pytest.mark.parametrize(
    ("kind", "value", "failed"), [("small", 106, "fragile 4"), ("large", 36, "fragile 4")]
)
def test_what_failed_runs_again_and_what_is_done_does_not(
    fragile: Fragile, kind: str, value: int, failed: str, threads: int
) -> None:
    def work() -> None:
        TaskWorker(fragile.tasks, fragile.tasks.task_client.client, threads=threads, idle_exit=0).run()

    result = getattr(fragile, kind)().send()
    assert not result.retry()
    for attempt in range(1, 4):
        work()
        with pytest.raises(TaskFailed, match="not 4"):
            result.get(timeout=0)
        fragile.broken = attempt < 3
        assert result.retry()
        assert not result.retry()
        assert result.state == "waiting"
    work()
    assert result.get(timeout=0) == value
    assert not result.retry()
    assert fragile.ran.pop(failed) == 4
    assert set(fragile.ran.values()) == {1}
    assert fragile.tasks.task_client.client.queue("tasks").peek() == []


def test_a_call_of_retry_that_comes_late_runs_nothing(fragile: Fragile, clock: ManualClock) -> None:
    result = fragile.large().send()
    fragile.tasks.drain()
    assert result.retry()
    fragile.tasks.drain()
    assert fragile.ran["fragile 4"] == 2
    fragile.tasks.task_client.retry(f"{result.id}@1")  # by somebody who had seen the failure of the first run
    fragile.tasks.drain()
    assert fragile.ran["fragile 4"] == 2
    assert result.retry()
    fragile.tasks.task_client.retry(f"{result.id}@1")
    fragile.broken = False
    fragile.tasks.drain()
    assert result.get(timeout=0) == 36
    assert fragile.ran["fragile 4"] == 3


def test_what_waits_of_a_run_that_failed_is_dropped_when_it_is_retried(
    fragile: Fragile, clock: ManualClock
) -> None:
    late = [fragile.add.options(delay=60).signature(each, 0) for each in range(5)]
    result = chord([fragile.fragile.signature(7), *late], fragile.total.then()).send()
    fragile.tasks.drain()
    fragile.broken = False
    assert result.retry()
    fragile.tasks.drain()
    clock.advance(60)
    fragile.tasks.drain()
    assert result.get(timeout=0) == 17
    assert {fragile.ran[f"{each}+0"] for each in range(5)} == {1}


def test_a_workflow_that_was_cancelled_or_lost_a_step_goes_on_when_it_is_retried(
    fragile: Fragile, client: shardq.Client
) -> None:
    fragile.broken = False
    cancelled, lost = (fragile.large().send() for _ in range(2))
    fragile.tasks.drain(queues=["tasks"])
    assert cancelled.cancel()
    client.queue("others").purge()
    states = [cancelled.state, lost.state]
    assert cancelled.retry()
    assert lost.retry()
    fragile.tasks.drain()
    assert [*states, cancelled.state, lost.state] == ["cancelled", "missing", "done", "done"]
    assert cancelled.get(timeout=0) == lost.get(timeout=0) == 36
    assert set(fragile.ran.values()) <= {1, 2}


def test_a_run_that_was_retried_can_be_cancelled_and_retried_before_it_begins(fragile: Fragile) -> None:
    result = fragile.small().send()
    fragile.tasks.drain()
    assert result.retry()
    assert result.cancel()
    states = [result.state]
    fragile.broken = False
    assert result.retry()
    fragile.tasks.drain()
    assert [*states, result.state] == ["cancelled", "done"]


@pytest.mark.parametrize("retried", [False, True])
@pytest.mark.parametrize("kind", ["small", "large"])
def test_what_is_kept_no_longer_cannot_be_retried_also_where_its_plan_was_read_before(
    fragile: Fragile, clock: ManualClock, kind: str, retried: bool
) -> None:
    result = getattr(fragile, kind)().send(keep=60)
    fragile.tasks.drain()
    if retried:
        assert result.retry()
        fragile.tasks.drain()
    clock.advance(61)
    fragile.broken = False
    ran = fragile.ran.copy()
    for each in (result, fragile.tasks.workflow(result.id)):
        with pytest.raises(ResultMissing, match="longer ago than it is kept"):
            each.retry()
    fragile.tasks.task_client.retry(f"{result.id}@9")  # by somebody who had seen its failure in time
    fragile.tasks.drain()
    assert fragile.ran == ran


def test_a_workflow_has_a_number_of_runs_that_can_be_looked_through(
    fragile: Fragile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow_result, "MOST_RUNS", 2)
    result = fragile.small().send()
    for _ in range(2):
        fragile.tasks.drain()
        assert result.retry()
    fragile.tasks.drain()
    with pytest.raises(shardq.InvalidSetting, match="was retried 2 times: send it again"):
        result.retry()


def test_what_was_cancelled_before_it_began_cannot_be_retried(fragile: Fragile) -> None:
    result = fragile.small().send()
    assert result.cancel()
    with pytest.raises(ResultMissing, match="was removed before it began"):
        result.retry()


@pytest.fixture
def dying(url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Dying, Fragile]]:
    store = Dying(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as client:
        yield store, Fragile(client)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_retry_dies_it_can_be_repeated_and_ends(
    dying: tuple[Dying, Fragile], fragile: Fragile, clock: ManualClock, *, after: bool
) -> None:
    store, deadly = dying
    deadly.broken = False
    for step in range(300):
        fragile.broken = True
        result = fragile.large().send()
        fragile.tasks.drain()
        fragile.broken = False
        fragile.ran.clear()
        deadly.ran.clear()
        store.calls_left, store.after = step, after
        try:
            deadly.tasks.workflow(result.id).retry()
            deadly.tasks.drain()
        except Died:
            pass
        else:
            break
        store.calls_left = None
        for _ in range(3):
            result.retry()  # also when the worker died of the only attempt of a step
            clock.advance(31)
            fragile.tasks.drain()
        assert result.get(timeout=0) == 36
        ran = fragile.ran + deadly.ran
        assert set(ran) == {"fragile 4", "total [0, 1, 2, 3, 4, 5, 6, 7, 8]"}
        assert max(ran.values()) <= 2
    else:
        raise AssertionError("it never came to an end")
    assert step > 20


@pytest.mark.parametrize("ended", [False, True], ids=["running", "ended"])
def test_what_was_done_in_a_run_before_is_not_cancelled_any_more(fragile: Fragile, ended: bool) -> None:
    result = group(fragile.add.signature(1, 1), fragile.fragile.signature(4)).send()
    fragile.tasks.drain()
    fragile.broken = False
    assert result.retry()
    if ended:
        fragile.tasks.drain()
        assert not result.cancel()
        assert not fragile.tasks.workflow(result.id).cancel()
        assert (result.state, result.get(timeout=0)) == ("done", [2, 4])
        return
    assert result.cancel()
    assert [each.state for each in result.results] == ["done", "cancelled"]
    assert result.state == "cancelled"
    assert result.retry()
    fragile.tasks.drain()
    assert result.get(timeout=0) == [2, 4]
    assert fragile.ran["1+1"] == 1
