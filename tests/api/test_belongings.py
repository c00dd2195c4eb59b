"""Nothing that belongs to a queue stays when it is deleted, whoever makes something for it at that moment."""

from __future__ import annotations

from contextlib import suppress

import pytest

import shardq
from shardq.sharding.shard import INTERNAL
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock


class DeletedMeanwhile(WrappedStore):
    """Its queue is deleted by somebody else right before something is made for it."""

    deletes: shardq.Client | None = None

    def create_queue(self, record: QueueRecord) -> bool:
        if self.deletes is not None and record.name != "q":
            self.deletes.delete_queue("q")
            self.deletes = None
        return super().create_queue(record)


@pytest.mark.parametrize("method", ["list_queues", "drop_queue"])
@pytest.mark.parametrize("call", [2, 3, 4])
def test_a_deletion_that_failed_half_way_is_completed_by_the_next_one(
    url: str, client: shardq.Client, clock: ManualClock, method: str, call: int
) -> None:
    queue = client.create_queue(
        "q", max_deliveries=None, history_retention=900, keep_results=True, rate_limit="5/s", max_in_flight=5
    )
    queue.producer().send(b"x")
    queue.consumer().receive(1)[0].ack(result=b"y")
    nth = call if method == "drop_queue" else call - 1
    store = FaultyStore(
        open_store(url, clock), FaultPlan(faults=(Fault(method, nth, FaultKind.UNAVAILABLE),))
    )
    with shardq.Client(store, retry_seconds=0) as other, pytest.raises(shardq.StoreUnavailable):
        other.delete_queue("q")
    with pytest.raises(shardq.QueueNotFound):
        client.delete_queue("q")
    assert client.queues() == client.queues(INTERNAL) == ()


def test_the_deletion_of_a_queue_leaves_semaphores(client: shardq.Client) -> None:
    semaphore = client.semaphore("q.in-flight", permits=2)
    client.create_queue("q", max_deliveries=None)
    client.delete_queue("q")
    with pytest.raises(shardq.QueueNotFound):
        client.delete_queue("q")
    assert semaphore.state().permits == 2


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
