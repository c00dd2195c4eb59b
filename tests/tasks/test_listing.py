"""Workflows are listed with their states and times, for as long as they are kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import shardq
from shardq.base.clock import to_datetime
from shardq.tasks import chain, chord, group, views
from shardq.testing import ManualClock
from tests.tasks.sums import Sums


def test_workflows_are_listed_with_state_and_times_for_as_long_as_they_are_kept(
    sums: Sums, clock: ManualClock
) -> None:
    assert sums.tasks.workflows() == []
    begun, later = to_datetime(clock.now()), sums.add.options(delay=5)
    done = group(sums.add.signature(1, 2), later.signature(2, 2)).send(name="sums", keep=600)
    failed = chain(later.signature(1, 3), sums.fail.then()).send(keep=600)
    never = sums.add.options(delay=9_000)
    half = group(sums.fail.signature(1), never.signature(1, 5)).send(keep=9_999)
    chord([sums.add.signature(2, 9), never.signature(1, 6)], sums.total.then()).send(keep=9_999)
    sums.tasks.drain()
    clock.advance(5)
    assert {each.state for each in sums.tasks.workflows(name="add")} == {"running"}
    sums.tasks.drain()
    found = {each.id: each for each in sums.tasks.workflows()}
    assert len(found) == 4
    assert found[done.id] == views.WorkflowView(
        id=done.id,
        name="sums",
        state="done",
        queue="tasks",
        begun=begun,
        ended=begun + timedelta(seconds=5),
        kept_until=begun + timedelta(seconds=600),
    )
    assert (found[failed.id].state, found[failed.id].failure) == ("failed", "ValueError: not 4")
    assert (found[half.id].state, found[half.id].queue) == ("failed", "others")
    assert [each.id for each in sums.tasks.workflows(state="failed", name="add")] == [failed.id]
    clock.advance(600)
    assert {each.name for each in sums.tasks.workflows()} == {"fail", "add"}
    assert sums.tasks.task_client.results.remove_old() > 1
    assert done.state == "missing"


def test_a_workflow_that_was_cancelled_or_retried_is_listed_as_it_is_now(sums: Sums) -> None:
    cancelled = group(sums.fail.signature(1), sums.add.signature(1, 1)).send()
    failed = chain(sums.add.signature(1, 3), sums.fail.then()).send()
    sums.tasks.drain(queues=["tasks"])
    assert cancelled.cancel() is True
    sums.tasks.drain()
    assert failed.retry() is True
    found = {each.id: (each.state, each.run) for each in sums.tasks.workflows()}
    assert found == {failed.id: ("running", 1)}  # the other one had not begun
    sums.tasks.drain()
    again = group(sums.fail.signature(1), sums.add.signature(1, 1)).send()
    sums.tasks.drain(queues=["others"])
    assert again.cancel() is True
    found = {each.id: (each.state, each.run) for each in sums.tasks.workflows()}
    assert found == {failed.id: ("failed", 1), again.id: ("failed", 0)}


def test_the_newest_workflows_are_listed_page_by_page(
    sums: Sums, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "_PAGE", 2)
    sent: list[str] = []
    for number in range(7):
        sent.append(chain(sums.add.signature(1, number), sums.add.then(1)).send(name=f"{number % 2}").id)
        sums.tasks.drain()
        clock.advance(1)
    assert [each.id for each in sums.tasks.workflows(limit=2)] == [sent[6], sent[5]]
    assert [each.id for each in sums.tasks.workflows(limit=2, state="done", name="1")] == [sent[5], sent[3]]


def test_workflows_are_listed_also_after_their_list_was_deleted(sums: Sums, client: shardq.Client) -> None:
    chain(sums.add.signature(1, 1), sums.add.then(1)).send()
    sums.tasks.drain()
    assert len(sums.tasks.workflows()) == 1
    client.delete_queue("_shardq/tasks/workflows")
    assert sums.tasks.workflows() == []
    chain(sums.add.signature(1, 1), sums.add.then(1)).send(name="next")
    sums.tasks.drain()
    assert [(each.name, each.state) for each in sums.tasks.workflows()] == [("next", "done")]


def test_a_wrong_name_state_or_limit_is_refused(sums: Sums) -> None:
    wrong: list[dict[str, Any]] = [{"limit": 0}, {"state": "waiting"}]
    for arguments in wrong:
        with pytest.raises(shardq.InvalidSetting):
            sums.tasks.workflows(**arguments)
    names: list[Any] = ["", "two\nlines", 7, "x" * 201]
    for name in names:
        with pytest.raises(shardq.InvalidSetting, match="name="):
            chain(sums.add.signature(1, 2)).send(name=name)
