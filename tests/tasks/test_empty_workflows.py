"""A fan-out over a list that is empty this time completes, with an empty list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import shardq
from shardq.tasks import TaskFailed, Workflow, chain, chord, group
from tests.tasks.sums import Sums

Make = Callable[[Sums], Workflow]

EMPTY: dict[str, Make] = {
    "map": lambda sums: sums.add.map([]),
    "map of a generator": lambda sums: sums.add.map(each for each in ()),
    "map that collects errors": lambda sums: sums.add.map([], errors="collect"),
    "group behind a step": lambda sums: chain(sums.add.signature(1, 2), group()),
    "groups in a group": lambda sums: group(sums.add.map([]), group()),
    "group between empty ones": lambda sums: chain(sums.add.map([]), group(), sums.add.map([])),
}


@pytest.mark.parametrize("make", EMPTY.values(), ids=EMPTY)
def test_an_empty_group_completes_with_an_empty_list(sums: Sums, make: Make) -> None:
    sent = make(sums).send()
    assert sent.state == "waiting"
    sums.tasks.drain()
    assert (sent.get(timeout=0), sent.state, list(sent.values())) == ([], "done", [])
    found = sums.tasks.workflow(sent.id)
    assert (found.get(timeout=0), found.state, found.retry(), found.cancel()) == ([], "done", False, False)
    (listed,) = sums.tasks.workflows()
    assert (listed.state, listed.ended is not None) == ("done", True)


@pytest.mark.parametrize(
    "make", [group, chain, lambda: group([]), lambda: chain(group(), chain()), lambda: group(chain())]
)
def test_an_empty_workflow_that_names_no_task_is_done_at_once(
    make: Callable[[], Workflow], client: shardq.Client
) -> None:
    sent = make().send()
    assert (sent.get(timeout=0), sent.state, sent.steps(), sent.results) == ([], "done", [], ())
    assert (sent.cancel(), sent.retry(), list(sent.values())) == (False, False, [])

    async def wait() -> Any:
        return await sent

    assert asyncio.run(wait()) == []
    assert client.queues() == ()


TOTALS: dict[str, tuple[Make, object]] = {
    "chord": (lambda sums: chord([], sums.total.then()), 0),
    "chord that collects errors": (lambda sums: chord([], sums.total.then(), errors="collect"), 0),
    "map": (lambda sums: chain(sums.add.map([]), sums.total.then()), 0),
    "behind a step": (lambda sums: chain(sums.add.signature(1, 2), group(), sums.total.then()), 0),
    "in a group": (lambda sums: chord([sums.add.signature(1, 2), sums.add.map([])], sums.total.then()), 3),
    "in a large group": (
        lambda sums: chord([sums.add.map([]), *(sums.add.signature(1, 0) for _ in range(450))], sums.total.then()),
        450,
    ),
    "a group behind it": (lambda sums: chain(group(), group(sums.total.then(), sums.total.then())), [0, 0]),
    "a large group behind it": (
        lambda sums: chain(group(), group(sums.total.then() for _ in range(250)), sums.total.then()),
        0,
    ),
    "a chain without steps": (lambda sums: chain(sums.add.signature(1, 2), chain(), sums.add.then(3)), 6),
    "a step that takes nothing": (lambda sums: chain(group(), sums.add.signature(1, 2)), 3),
}  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), TOTALS.values(), ids=TOTALS)
def test_what_follows_an_empty_group_takes_an_empty_list(sums: Sums, make: Make, expected: object) -> None:
    sent = make(sums).send()
    sums.tasks.drain()
    assert sent.get(timeout=0) == expected


@pytest.mark.parametrize("empty", [*EMPTY, "group", "chain"])
def test_a_task_that_returns_an_empty_group_has_an_empty_list_as_its_result(sums: Sums, empty: str) -> None:
    others: dict[str, Make] = {"group": lambda _: group(), "chain": lambda _: chain()}
    make = (EMPTY | others)[empty]

    @sums.tasks.task(queue="fans")
    def fan() -> Workflow:
        return make(sums)

    sent = chain(fan.signature(), sums.total.then()).send()
    alone = fan.send()
    sums.tasks.drain()
    assert (sent.get(timeout=0), alone.get(timeout=0)) == (0, [])


def test_a_failure_before_an_empty_group_is_the_failure_of_what_follows(sums: Sums) -> None:
    sent = chain(sums.fail.signature(1), group(), sums.total.then()).send()
    sums.tasks.drain()
    with pytest.raises(TaskFailed, match="ValueError: not 1"):
        sent.get(timeout=0)


def test_a_collected_part_that_ends_in_an_empty_group_adds_nothing_to_the_list(sums: Sums) -> None:
    parts = [chain(sums.fail.signature(1), group()), chain(sums.add.signature(1, 2), sums.add.map([]))]
    sent = group(*parts, sums.add.signature(1, 1), errors="collect").send()
    sums.tasks.drain()
    assert [each.value for each in sent.get(timeout=0)] == [2]


def test_a_workflow_with_an_empty_group_can_be_retried(sums: Sums) -> None:
    sent = chain(sums.fail.signature(1), group(), sums.total.then()).send()
    sums.tasks.drain()
    assert sent.retry()
    sums.tasks.drain()
    assert sent.state == "failed"
    waits = chain(sums.add.map([]), sums.fail.then()).send()
    sums.tasks.drain()
    assert waits.state == "failed"
