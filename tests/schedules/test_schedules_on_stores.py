"""Schedules on every store: two clients keep one going in real time, and every occurrence comes once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shardq

Connect = Callable[[], shardq.Client]


def test_changes_of_several_clients_are_all_kept(connect_any: Connect, name: str) -> None:
    one, two = connect_any(), connect_any()
    one.create_queue(name, shards=1, time_shards=1)
    one.schedules.create(name, queue=name, cron="@daily", headers={"b": b"\0"})
    two.schedules.pause(name)
    assert one.schedules.alter(name, body=b"new").paused
    assert (two.schedules.get(name).body, two.schedules.get(name).headers) == (b"new", {"b": b"\0"})
    one.schedules.delete(name)
    with pytest.raises(shardq.ScheduleNotFound):
        two.schedules.resume(name)
    again = two.schedules.create(name, queue=name, every=5)
    assert (again.paused, one.schedules.get(name)) == (False, again)
    one.delete_queue(name)
    assert two.schedules.list() == ()
