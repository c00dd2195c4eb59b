"""Groups that collect errors: what fails stops nothing, and stands in the list, whatever the size and whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.tasks import (
    Collected,
    RetryPolicy,
    TaskCancelled,
    TaskFailed,
    TaskWorker,
    Workflow,
    advancing,
    chain,
    chord,
    group,
    plans,
    workflow,
)
from shardq.testing import ManualClock
from tests.dying_store import Died
from tests.tasks.dying import Dying
from tests.tasks.sums import Sums


class Collecting(Sums):
    def __init__(self, client: shardq.Client) -> None:
        super().__init__(client)
        self.broken = False

        mortal = self.tasks.task(retry=RetryPolicy(attempts=3, never=(ValueError,)))  # its worker may die

        @mortal
        def even(number: int) -> int:
            self.ran[f"even {number}"] += 1
            if number % 2:
                raise ValueError(f"{number} is odd")
            return number

        @mortal
        def tell(parts: list[Collected[int]], before: str = "") -> str:
            self.ran["tell"] += 1
            if self.broken:
                raise ValueError("broken")
            return before + " ".join(_told(part) for part in parts)

        self.even, self.tell = even, tell

    def chord(self, count: int) -> Workflow:
        return chord((self.even.signature(each) for each in range(count)), self.tell.then(), errors="collect")


def _told(part: Collected[int]) -> str:
    return f"{part.failure.kind}" if part.failure else str(part.value)


def expected(count: int) -> str:
    return " ".join("ValueError" if each % 2 else str(each) for each in range(count))


@pytest.fixture
def collecting(client: shardq.Client, monkeypatch: pytest.MonkeyPatch) -> Collecting:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", 2)
    monkeypatch.setattr(plans, "MIN_ASSIGNED", 2)
    return Collecting(client)


SIZES = [1, 2, 3, 5, 9]


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("kept", [0, 250_000])
def test_what_follows_takes_values_and_failures_and_runs_once(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch, count: int, kept: int
) -> None:
    monkeypatch.setattr(advancing, "KEPT_BYTES", kept)
    result = collecting.chord(count).send()
    collecting.tasks.drain()
    assert result.get(timeout=0) == expected(count)
    assert (result.state, collecting.ran["tell"]) == ("done", 1)
    assert not result.retry()


@pytest.mark.parametrize("count", SIZES)
def test_who_waits_for_such_a_group_gets_them_too(collecting: Collecting, count: int) -> None:
    result = collecting.even.map(range(count), errors="collect").send(name="evens")
    collecting.tasks.drain()
    for each in (result, collecting.tasks.workflow(result.id)):
        parts = each.get(timeout=0)
        assert " ".join(map(_told, parts)) == expected(count)
        assert parts[0].get() == 0
        assert each.state == "done"
        assert asyncio.run(_awaited(each)) == parts
    if count > 1:
        with pytest.raises(TaskFailed, match="1 is odd"):
            parts[1].get()
        assert parts[1].failure.call == "even(number=1)"
    assert [each.state for each in collecting.tasks.workflows(name="evens")] == ["done"]
    assert not result.cancel()


@pytest.mark.parametrize("size", [2, 100])
def test_a_part_may_be_a_chain_and_a_step_behind_takes_arguments_of_its_own(
    collecting: Collecting, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(workflow, "BUCKET_STEPS", size)
    parts = [chain(collecting.even.signature(each), collecting.add.then(10)) for each in range(4)]
    result = chain(group(parts, errors="collect"), collecting.tell.then(before="told: ")).send()
    collecting.tasks.drain()
    assert result.get(timeout=0) == "told: 10 StepFailed 12 StepFailed"


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_error_outside_of_it_stops_what_waits_as_ever(collecting: Collecting, size: int) -> None:
    inner = group([collecting.even.signature(1), collecting.even.signature(2)], errors="collect")
    behind = group(
        (chain(collecting.add.then(each), collecting.add.then(1)) for each in range(size)), errors="collect"
    )
    beside = chain(group(inner, collecting.even.signature(3)), collecting.tell.then()).send()
    before = chain(collecting.even.signature(5), behind).send()
    around = chain(collecting.even.signature(7), behind, collecting.tell.then()).send()
    for _ in range(2):
        collecting.tasks.drain()
    for result, text in ((beside, "3 is odd"), (before, "5 is odd"), (around, "7 is odd")):
        with pytest.raises(TaskFailed, match=text):
            result.get(timeout=0)
        with pytest.raises(TaskFailed, match=text):
            asyncio.run(_awaited(result))
        assert result.state == "failed"
    assert collecting.ran["tell"] == 0
    assert {each.state for each in collecting.tasks.workflows()} == {"failed"}


def test_the_outer_of_two_such_groups_collects_what_stops_the_inner_one(collecting: Collecting) -> None:
    inner = group([collecting.add.then(1), collecting.add.then(2)], errors="collect")
    parts = [chain(collecting.even.signature(each), inner, collecting.tell.then()) for each in range(2)]
    result = group(parts, errors="collect").send()
    collecting.tasks.drain()
    told, failed = result.get(timeout=0)
    assert (told.value, told.failure, failed.failure.kind) == ("1 2", None, "StepFailed")
    assert (result.state, collecting.ran["tell"]) == ("done", 1)


@pytest.mark.parametrize("count", [2, 5])
def test_a_step_that_does_not_take_what_is_collected_has_failed(collecting: Collecting, count: int) -> None:
    parts = (collecting.even.signature(each) for each in range(count))
    result = chord(parts, collecting.total.then(), errors="collect").send()
    collecting.tasks.drain()
    with pytest.raises(TaskFailed, match="was given something else"):
        result.get(timeout=0)


@pytest.mark.parametrize("count", SIZES)
def test_a_retry_tries_the_failed_parts_again_with_what_failed_behind_them(
    collecting: Collecting, count: int
) -> None:
    collecting.broken = True
    result = collecting.chord(count).send()
    collecting.tasks.drain()
    assert result.state == "failed"
    collecting.broken = False
    assert result.retry()
    collecting.tasks.drain()
    assert result.get(timeout=0) == expected(count)
    assert [collecting.ran[f"even {each}"] for each in range(count)] == [
        1 + each % 2 for each in range(count)
    ]


@pytest.mark.parametrize("count", [2, 5])
def test_what_is_cancelled_is_no_failure_to_be_collected(collecting: Collecting, count: int) -> None:
    result = collecting.chord(count).send()
    assert result.cancel()
    collecting.tasks.drain()
    with pytest.raises(TaskCancelled):
        result.get(timeout=0)
    assert collecting.ran["tell"] == 0


def test_a_list_that_is_too_large_for_a_message_is_read_by_the_worker(collecting: Collecting) -> None:
    tasks = collecting.tasks

    @tasks.task(retry=1)
    def large(number: int) -> bytes:
        if number % 2:
            raise ValueError("x" * 2_000)
        return bytes(2_500_000)

    @tasks.task
    def sizes(parts: list[Collected[bytes]]) -> list[int]:
        return [-1 if part.value is None else len(part.value) for part in parts]

    result = chord((large.signature(each) for each in range(4)), sizes.then(), errors="collect").send()
    tasks.drain()
    assert result.get(timeout=0) == [2_500_000, -1, 2_500_000, -1]


def _wrong(errors: object) -> Any:
    return errors


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda app: group(app.even.signature(1), errors=_wrong("ignore")),
            "errors='ignore' of a group: give one of stop, co",
        ),
        (lambda app: app.even.map([1], errors=None), "errors=None of a group"),
        (
            lambda app: chord([app.even.signature(1)], app.tell.then(), errors=_wrong(True)),
            "errors=True of a group",
        ),
        (
            lambda app: group(app.even.map(range(3)), app.even.signature(1), errors="collect"),
            "has a large group, or one that collects errors itself",
        ),
        (
            lambda app: group(app.even.map(range(2), errors="collect"), errors="collect"),
            "has a large group, or one that collects errors itself",
        ),
    ],
)
def test_what_cannot_be_collected_is_refused(
    collecting: Collecting, make: Callable[[Any], object], text: str
) -> None:
    with pytest.raises(shardq.InvalidSetting, match=text):
        make(collecting)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
def test_wherever_a_worker_dies_it_ends_with_the_same_list(
    url: str, clock: ManualClock, collecting: Collecting, after: bool
) -> None:
    for step in range(400):
        result = collecting.chord(3).send()
        store = Dying(open_store(url, clock))
        store.calls_left, store.after = step, after
        with shardq.Client(store, retry_seconds=0) as deadly, suppress(Died):
            TaskWorker(Collecting(deadly).tasks, deadly, threads=0, idle_exit=0).run()
        died = store.calls_left < 0
        for _ in range(3):
            clock.advance(31)
            with shardq.connect(url, clock=clock) as client:
                TaskWorker(Collecting(client).tasks, client, threads=0, idle_exit=0).run()
        assert result.get(timeout=0) == expected(3), step
        if not died:
            assert step > 10
            return
    pytest.fail("it never came to an end")


async def _awaited(result: Any) -> object:
    return await asyncio.wait_for(result, 60)
