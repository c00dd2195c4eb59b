"""Tasks that are sent at fixed times."""

from __future__ import annotations

from typing import Any

import pytest

import shardq
from shardq.tasks import ArgumentsRejected, Tasks
from shardq.testing import ManualClock


def test_a_task_is_sent_at_each_occurrence_with_its_options(
    client: shardq.Client, tasks: Tasks, clock: ManualClock
) -> None:
    ran: list[str] = []

    @tasks.task(queue="reports", priority=2, group="one", ttl=600, timeout=30, keep_result=60)
    def report(what: str = "all") -> int:
        ran.append(what)
        return len(ran)

    made = report.schedule("hourly", every=3_600)
    sales = report.signature("sales").schedule("sales", every=3_600, count=1)
    assert (made.queue, made.priority, made.group, made.ttl, sales.count) == ("reports", 2, "one", 600, 1)
    for _ in range(2):
        clock.advance(3_600)
        tasks.drain()
    assert sorted(ran) == ["all", "all", "sales"]
    last = client.schedules.get("hourly").last_message
    assert last is not None
    assert report.result(last).get(timeout=0) == 3
    assert report.schedule("hourly", every=60, exist_ok=True).every == 3_600
    with pytest.raises(shardq.ScheduleExists):
        report.schedule("hourly", every=60)


def test_what_a_schedule_cannot_send_is_refused_and_names_the_remedy(
    client: shardq.Client, tasks: Tasks
) -> None:
    @tasks.task
    def report(what: str) -> None:
        pass

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delay": 5}, r"use task.options\(delay=0.0\)"),
        ({"unique_key": True}, r"overlap='skip' .*options\(unique_key=None\)"),
        ({"dedupe_key": "a"}, "dedupe_key='a' of task 'report'"),
    ]
    for options, text in wrong:
        with pytest.raises(shardq.InvalidSetting, match=text):
            report.options(**options).signature("sales").schedule("nightly", cron="@daily")
    with pytest.raises(ArgumentsRejected):
        report.schedule("nightly", cron="@daily")
    with pytest.raises(ArgumentsRejected):
        report.then().schedule("nightly", cron="@daily")
    with pytest.raises(shardq.InvalidSetting):
        report.signature("sales").schedule("nightly", cron="never")
    assert client.schedules.list() == ()
