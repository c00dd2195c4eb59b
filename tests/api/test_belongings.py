"""Nothing that belongs to a queue stays when it is deleted, whoever makes something for it at that moment."""

from __future__ import annotations

from contextlib import suppress

import pytest

import shardq
from shardq.sharding.shard import INTERNAL
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import ManualClock


class DeletedMeanwhile(WrappedStore):
    """Its queue is deleted by somebody else right before something is made for it."""

    deletes: shardq.Client | None = None

    def create_queue(self, record: QueueRecord) -> bool:
        if self.deletes is not None and record.name != "q":
            self.deletes.delete_queue("q")
            self.deletes = None
        return super().create_queue(record)


@pytest.mark.parametrize(
    "settings",
    [
        {"events": 900},
        {"history_retention": 900, "keep_results": True},
        {"rate_limit": "5/s"},
        {"max_in_flight": 5},
    ],
    ids=["events", "results", "rate", "in flight"],
)
def test_a_queue_that_is_deleted_while_something_is_made_for_it_leaves_nothing(
    url: str, client: shardq.Client, clock: ManualClock, settings: dict[str, float]
) -> None:
    queue = client.create_queue("q", max_deliveries=None, **settings)  # type: ignore[arg-type]
    store = DeletedMeanwhile(open_store(url, clock))
    with shardq.Client(store, retry_seconds=0) as other, suppress(shardq.QueueNotFound):
        if "events" not in settings:
            queue.producer().send(b"x")
        store.deletes = client
        if "events" in settings:
            other.queue("q").producer().send(b"x")
        for message in other.queue("q").consumer().receive(1):
            message.ack(result=b"y" if "keep_results" in settings else None)
    assert store.deletes is None
    assert client.queues() == client.queues(INTERNAL) == ()
