"""A queue that is created again is another one, whatever is left of the one before and whoever has not noticed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shardq.base.shard import Shard
from shardq.errors import OutcomeUnknown, QueueNotFound, StoreUnavailable
from shardq.storage.cassandra import directory, queues, removal
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.keys import KeyChange
from shardq.storage.requests import Append, Claim, DedupeEntry, QueueRecord, ShardCounts, Sweep
from shardq.testing import BundleFactory

pytestmark = [pytest.mark.server, pytest.mark.long]

MINUTE = 60_000_000
PARTITIONS = "SELECT DISTINCT shard FROM entry"


class Killed(BaseException):
    """The process ends here."""


class MortalSession(Session):
    """Ends at one of its writes, before or after it is carried out."""

    die_at = -1
    carried_out = False
    writes = 0

    def write(self, statements: Sequence[Statement]) -> None:
        self._do(lambda: super(MortalSession, self).write(statements))

    def apply(self, statements: Sequence[Statement]) -> bool:
        return bool(self._do(lambda: super(MortalSession, self).apply(statements)))

    def _do(self, do: Callable[[], Any]) -> Any:
        self.writes += 1
        if self.writes - 1 != self.die_at:
            return do()
        if self.carried_out:
            do()
        raise Killed


@pytest.fixture
def name(store: CassandraStore) -> Iterator[str]:
    name = f"i{os.urandom(6).hex()}"
    yield name
    store.drop_queue(name)


def create(store: CassandraStore, name: str) -> Shard:
    assert store.create_queue(QueueRecord(name, b"", 1))
    return Shard(name, 0, 0)


def received(store: CassandraStore, shard: Shard) -> list[bytes]:
    claimed = store.claim(Claim(shard, os.urandom(16), 100, MINUTE))
    return [each.bundle.id for each in claimed.slices]


def stored_of(store: CassandraStore, name: str) -> list[str]:
    rows = (partition for (partition,) in store.session.read(PARTITIONS, ()))
    return [partition for partition in rows if partition.startswith((f"{name}@", f"{name}:"))]


def never_looks_again(store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client stand still between its look and its write."""
    called = {shard.queue: store.place(shard).queue}
    monkeypatch.setattr(store.incarnations, "of", lambda _, queue, **options: called[queue])
    monkeypatch.setattr(store.listed, "is_fresh", lambda _: True)


def test_what_a_client_that_has_not_noticed_writes_is_nowhere(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a client that stands still in the middle of an append, while the queue is dropped and created again
    shard = create(store, name)
    stale = open_store()
    bundles = [BundleFactory(store.now)(3) for _ in range(2)]
    stale.append(Append(shard, (bundles[0],)))
    never_looks_again(stale, shard, monkeypatch)
    assert store.drop_queue(name)
    create(store, name)
    # When it goes on: with an append, a claim, a purge
    stale.append(Append(shard, tuple(bundles)))
    assert received(stale, shard) == []
    stale.purge(shard)
    # Then nothing of it is in the queue, nor in the way of the same bundles
    assert store.count(shard) == ShardCounts()
    store.append(Append(shard, tuple(bundles)))
    assert received(store, shard) == [each.id for each in bundles]


def test_a_client_that_notices_sends_to_the_queue_that_there_is_now(
    store: CassandraStore, open_store: Callable[[], CassandraStore], name: str
) -> None:
    shard = create(store, name)
    other = open_store()
    first, second = (BundleFactory(store.now)() for _ in range(2))
    other.append(Append(shard, (first,)))
    assert store.drop_queue(name)
    create(store, name)
    other.append(Append(shard, (second,)))
    assert received(store, shard) == [second.id]
    assert store.drop_queue(name)
    with pytest.raises(QueueNotFound):
        other.append(Append(shard, (second,)))


@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
def test_a_drop_that_ends_at_any_write_leaves_nothing_to_the_next_queue(
    store: CassandraStore,
    open_with: Callable[..., tuple[CassandraStore, Any]],
    name: str,
    carried_out: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "NOTICE", 0.0)
    bundle = BundleFactory(store.now)(2)
    for die_at in range(60):
        shard = create(store, name)
        store.append(Append(shard, (bundle,)))
        store.reserve_keys(name, [DedupeEntry("key", "old")], MINUTE)
        store.register_consumer([name], "old", MINUTE)
        # When the client that drops the queue ends at one of its writes
        dying, session = open_with(MortalSession)
        dying.load_queue(name)
        session.die_at, session.carried_out, session.writes = die_at, carried_out, 0
        died = False
        try:
            dying.drop_queue(name)
        except Killed:
            died = True
        dying.close()
        # Then it is dropped, or not; and what is created then is empty, and takes everything
        if store.load_queue(name) is not None:
            assert store.drop_queue(name)
        create(store, name)
        assert store.shards(name) == ()
        assert store.count(shard) == ShardCounts()
        assert [each and each.consumers for each in store.register_consumer([name], "new", MINUTE)] == [
            ("new",)
        ]
        entry = DedupeEntry("key", "new")
        assert store.reserve_keys(name, [entry], MINUTE) == (entry,)
        store.append(Append(shard, (bundle,)))
        assert received(store, shard) == [bundle.id]
        assert store.drop_queue(name)
        assert stored_of(store, name) == []
        if not died:
            return
    pytest.fail("a drop has no end")


def test_a_drop_touches_only_what_it_condemned(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shard = create(store, name)
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    other, bundle = open_store(), BundleFactory(store.now)()

    def meanwhile(_: float) -> None:
        monkeypatch.undo()
        create(other, name)  # which finishes the drop
        other.append(Append(shard, (bundle,)))

    # When somebody creates the queue again while one who drops it is between two steps
    monkeypatch.setattr(removal, "time", SimpleNamespace(sleep=meanwhile))  # the driver's threads sleep, too
    assert store.drop_queue(name)
    # Then the new queue stays
    assert store.load_queue(name) is not None
    assert received(store, shard) == [bundle.id]


def test_who_creates_a_queue_whose_drop_crashed_does_not_drop_what_another_has_created_meanwhile(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a drop that ended after its first step
    shard = create(store, name)
    assert queues.condemn(store.session, name) is not None
    other, bundle, look = open_store(), BundleFactory(store.now)(), queues.condemned

    def overtaken(session: Session, queue: str) -> str | None:
        found = look(session, queue)
        monkeypatch.undo()
        create(other, name)  # which finishes the drop
        other.append(Append(shard, (bundle,)))
        return found

    # When one of two who create the queue stands still after its look, until the other one has sent to it
    monkeypatch.setattr(queues, "condemned", overtaken)
    assert not store.create_queue(QueueRecord(name, b"", 1))
    # Then it is the other one's queue
    assert received(store, shard) == [bundle.id]


@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
def test_a_sweep_of_any_queue_finishes_a_drop_that_ended_at_any_write(
    store: CassandraStore,
    open_with: Callable[..., tuple[CassandraStore, Any]],
    shard: Shard,
    carried_out: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(directory, "NOTICE", 0.0)
    for die_at in range(60):
        # Given a queue with a message and a unique key, and a client that ends at one of the writes of its drop
        name = f"i{os.urandom(6).hex()}"
        store.append(Append(create(store, name), (BundleFactory(store.now)(),)))
        assert store.compare_and_set_keys(name, [KeyChange("key", None, "text")]) == ("text",)
        called = str(store.place(Shard(name, 0, 0)).queue)
        dying, session = open_with(MortalSession)
        session.die_at, session.carried_out, session.writes = die_at, carried_out, 0
        died = False
        try:
            dying.drop_queue(name)
        except Killed:
            died = True
        dying.close()
        # When another queue is swept, then nothing is left of it, or all of it
        alive = store.load_queue(name) is not None
        while store.sweep(Sweep(shard.queue, 0)):
            pass
        if alive:
            assert store.drop_queue(name)
        read = store.session.read
        assert read("SELECT version FROM queue WHERE name = ?", (name,)) == []
        assert stored_of(store, name) == []
        assert read("SELECT number FROM shard_directory WHERE queue = ?", (called,)) == []
        keys = "SELECT key FROM dedupe WHERE queue = ? AND bucket = ?"
        assert [each for bucket in range(16) for each in read(keys, (called, bucket))] == []
        if not died:
            return
    pytest.fail("a drop has no end")


def test_a_queue_of_before_there_were_incarnations_works_and_is_dropped(
    store: CassandraStore, name: str
) -> None:
    # Given a queue whose record has none
    store.create_schema()
    record = "INSERT INTO queue (name, version, settings) VALUES (?, ?, ?) IF NOT EXISTS"
    assert store.session.apply([(record, (name, 1, b""))])
    shard, bundle = Shard(name, 0, 0), BundleFactory(store.now)(2)
    # Then its rows are where they always were
    store.append(Append(shard, (bundle,)))
    assert stored_of(store, name) == [str(shard)]
    assert store.shards(name) == (shard,)
    assert received(store, shard) == [bundle.id]
    assert store.sweep(Sweep(name, 0)) == 0
    # And one that is created after it is another
    assert store.drop_queue(name)
    assert stored_of(store, name) == []
    create(store, name)
    store.append(Append(shard, (bundle,)))
    assert received(store, shard) == [bundle.id]
    assert stored_of(store, name) != [str(shard)]


def test_a_drop_that_cannot_end_does_not_say_that_nothing_was_changed(
    store: CassandraStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unanswered(*_: object) -> tuple[Shard, ...]:
        raise StoreUnavailable("no replica has answered")

    # When the queue is gone, and a read of what it held is not answered
    with monkeypatch.context() as failing, pytest.raises(OutcomeUnknown):
        failing.setattr(directory, "ever_listed", unanswered)
        store.drop_queue(shard.queue)
    # Then who repeats it knows that it was their own drop, though somebody else has finished it
    assert store.load_queue(shard.queue) is None
    store.sweep(Sweep(shard.queue, 0))
    assert not store.drop_queue(shard.queue)
