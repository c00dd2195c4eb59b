"""Stores are found by their URL's scheme."""

from __future__ import annotations

import sys

import pytest

import shardq
from shardq.storage.opening import open_store
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock


def test_a_store_whose_driver_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("shardq.storage.cassandra")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cassandra", None)
    with pytest.raises(shardq.InvalidSetting, match=r"pip install 'shardq\[cassandra\]'"):
        shardq.connect("cassandra://127.0.0.1/shardq")


def test_a_queue_that_exists_is_not_taken_for_a_new_one_whose_creation_was_not_answered(
    url: str, clock: ManualClock
) -> None:
    with shardq.connect(url, clock=clock) as other:
        other.create_queue("q", shards=3)
    store = FaultyStore(
        open_store(url, clock), FaultPlan(faults=(Fault("create_queue", 1, FaultKind.LOST_REQUEST),))
    )
    with shardq.Client(store) as client:
        with pytest.raises(shardq.QueueExists, match="exist_ok=True"):
            client.create_queue("q", shards=5)
        assert client.queue("q").settings.shards == 3


def test_an_older_queue_with_equal_settings_is_not_taken_for_one_whose_creation_was_not_answered(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise shardq.InvalidSetting("too many shards")

    with shardq.connect(url, clock=clock) as other:
        other.create_queue("q").producer().send(b"x")
    store = FaultyStore(
        open_store(url, clock), FaultPlan(faults=(Fault("create_queue", 1, FaultKind.LOST_REQUEST),))
    )
    monkeypatch.setattr(store, "create_shards", refuse)
    with shardq.Client(store) as client:
        with pytest.raises(shardq.QueueExists):  # its shards are not touched either
            client.create_queue("q")
        assert client.queue("q").counts().ready == 1


@pytest.mark.parametrize("method", ["create_queue", "create_shards"])
@pytest.mark.parametrize("error", [shardq.InvalidName, shardq.InvalidSetting, shardq.UnsupportedByStore])
def test_a_queue_whose_dead_letter_queue_is_refused_leaves_nothing(
    url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, method: str, error: type[Exception]
) -> None:
    store = open_store(url, clock)
    own = getattr(store, method)

    def refuse(given: object) -> object:
        first = given[0] if isinstance(given, tuple) else given
        if "q.dead" in (getattr(first, "name", ""), getattr(first, "queue", "")):
            raise error("not this one")
        return own(given)

    monkeypatch.setattr(store, method, refuse)
    with shardq.Client(store) as client:
        with pytest.raises(error):
            client.create_queue("q")
        assert client.queues() == ()
        kept = client.create_queue("q", max_deliveries=None)
        with pytest.raises(error):
            kept.alter(max_deliveries=3)
        assert kept.settings.max_deliveries is None
        with pytest.raises(error):
            client.create_queue("r", dead_letter_queue="q.dead", exist_ok=True)
        assert client.queues() == ("q",)
