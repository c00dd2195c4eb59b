"""Nothing that belongs to a queue stays when it is deleted, whoever makes something for it at that moment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import ParamSpec, TypeVar

import pytest

import shardq
from shardq.base.shard import INTERNAL
from shardq.storage.opening import open_store
from shardq.storage.requests import QueueRecord
from shardq.storage.wrapped_store import WrappedStore
from shardq.testing import Fault, FaultKind, FaultPlan, FaultyStore, ManualClock

P = ParamSpec("P")
T = TypeVar("T")
EXPIRES = 60


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
    with shardq.Client(store, retry_seconds=0) as other, pytest.raises(shardq.OutcomeUnknown):
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


class CreatedAgain(WrappedStore):
    """Its queue is created again by somebody else right before the first request of a kind after it was dropped."""

    method, name = "", ""
    create: Callable[[], None] | None = None
    _dropped = False

    def call(self, method: str, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        name = str(args[0]) if args else ""
        if self._dropped and self.create and method == self.method and fnmatchcase(name, self.name):
            create, self.create = self.create, None
            create()
        answer = super().call(method, do, *args, **kwargs)
        self._dropped = self._dropped or (method, name) == ("drop_queue", "q")
        return answer


def delete(client: shardq.Client, clock: ManualClock) -> None:
    client.delete_queue("q")


def let_expire(client: shardq.Client, clock: ManualClock) -> None:
    assert not client.delete_expired_queues("q")
    clock.advance(EXPIRES + 3)
    assert client.delete_expired_queues("q") == ("q",)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("list_queues", f"{INTERNAL}events/q/"),
        ("load_queue", f"{INTERNAL}events/q/*"),
        ("load_queue", "q"),
        ("list_queues", "_shardq/permits/q."),
        ("load_queue", "_shardq/permits/q.in-flight"),
    ],
)
@pytest.mark.parametrize("end", [delete, let_expire])
def test_what_belongs_to_a_queue_that_is_created_again_is_not_deleted_with_the_one_before(
    url: str,
    client: shardq.Client,
    clock: ManualClock,
    end: Callable[[shardq.Client, ManualClock], None],
    method: str,
    name: str,
) -> None:
    def make() -> shardq.Queue:
        queue = client.create_queue("q", max_deliveries=None, max_in_flight=1, events=3_600, expires=EXPIRES)
        sent.extend(queue.producer().send_many([b"x", b"y"]))
        return queue

    def create_again() -> None:
        queue = make()
        assert len(queue.consumer().receive(1)) == 1
        assert len(queue.trace(sent[-2])) == 2

    sent: list[str] = []
    consumer = make().consumer()
    for _ in range(2):
        consumer.receive(1).ack()
    client.queue("q").trace(sent[0])  # which waits for the log
    store = CreatedAgain(open_store(url, clock))
    with shardq.Client(store) as other:
        store.method, store.name, store.create = method, name, create_again
        end(other, clock)
        assert store.create is None
        assert not other.queue("q").consumer().receive(1)  # the only permit is taken
        assert len(client.queue("q").trace(sent[-2])) == 2
