"""Calls are drawn from an iterator some at a time, stored, and named when the rest cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import shardq
from shardq.tasks import Signature, signature
from tests.tasks.sums import Sums


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four calls at a time."""
    monkeypatch.setattr(signature, "CALLS_AT_ONCE", 4)


def test_calls_are_stored_while_others_are_still_to_be_drawn(sums: Sums, client: shardq.Client) -> None:
    stored: list[int] = []
    client.create_queue("tasks")

    def calls() -> Iterator[Signature[int]]:
        for number in range(10):
            stored.append(client.queue("tasks").counts().ready)
            yield sums.add.signature(number, 1)

    results = sums.tasks.send_many(calls())
    assert stored == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8]
    sums.tasks.drain()
    assert [each.get(timeout=0) for each in results] == list(range(1, 11))


def test_calls_of_several_queues_keep_their_order(sums: Sums) -> None:
    tasks = [sums.add, sums.add.options(queue="second"), sums.add.options(queue="third")]
    results = sums.tasks.send_many(tasks[number % 3].signature(number, 0) for number in range(9))
    assert [each.id.partition(":")[0] for each in results] == ["tasks", "second", "third"] * 3
    sums.tasks.drain(queues=["tasks", "second", "third"])
    assert [each.get(timeout=0) for each in results] == list(range(9))


def test_what_an_iterator_raises_names_what_is_stored(sums: Sums) -> None:
    def calls(count: int) -> Iterator[Signature[int]]:
        for number in range(count):
            yield sums.add.signature(number, 1)
        raise KeyError("no more")

    with pytest.raises(KeyError):
        sums.tasks.send_many(calls(3))
    with pytest.raises(shardq.PartialSend, match="4 calls are stored, and 1") as caught:
        sums.tasks.send_many(calls(5))
    assert isinstance(caught.value.__cause__, KeyError)
    sums.tasks.task_client.client.queue("tasks").producer().send_many(caught.value.unsent)
    sums.tasks.drain()
    assert sorted(sums.ran) == [f"{number}+1" for number in range(5)]
    wrong: list[Any] = [7, sums.add.signature(1, 1), [7]]
    for each in wrong:
        with pytest.raises(shardq.InvalidSetting):
            sums.tasks.send_many(each)


@pytest.mark.parametrize("together", [1, 3])
def test_a_queue_that_takes_nothing_stops_it_and_the_rest_can_be_sent_later(
    sums: Sums, client: shardq.Client, together: int
) -> None:
    other, third = sums.add.options(queue="second"), sums.add.options(queue="third")
    client.create_queue("second").pause(sends=True, delivery=False)
    with pytest.raises(shardq.QueuePaused):
        sums.tasks.send_many([other.signature(0, 0)])
    calls = [sums.add.signature(1, 0), *(other.signature(each, 0) for each in range(together))]
    drawn = iter([*calls, third.signature(9, 9), *calls])
    with pytest.raises(shardq.PartialSend) as caught:
        sums.tasks.send_many(drawn)
    error = caught.value
    assert isinstance(error.__cause__, shardq.QueuePaused)
    assert {each.partition(":")[0] for each in error.stored} == {"tasks"}
    assert len(error.stored) + len(error.unsent) == 4
    assert len(list(drawn)) == 2 * len(calls) + 1 - 4
    client.queue("second").resume()
    client.queue("second").producer().send_many(error.unsent)
    sums.tasks.drain(queues=["tasks", "second"])
    assert sums.ran["0+0"] == 1
