"""The directory is a hint: a shard is taken out of it with care, and what is missing in it is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import walk_packages
from typing import Any, cast

import pytest

from shardq.base.shard import Shard
from shardq.errors import QueueNotFound
from shardq.storage import cassandra, clocks
from shardq.storage.cassandra import directory, queues
from shardq.storage.cassandra.queues import parted
from shardq.storage.cassandra.session import Session, Statement
from shardq.storage.cassandra.store import CassandraStore
from shardq.storage.requests import Append, Sweep
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

SECOND = 1_000_000


class SlowSession(Session):
    """Takes a while to store an announcement."""

    passes: Callable[[int], None] = staticmethod(lambda _: None)

    def apply(self, statements: Sequence[Statement]) -> bool:
        if "SET leaving" in statements[0][0]:
            self.passes(SECOND)
        return super().apply(statements)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets this machine's time pass as far as the clients can see."""
    now = [0]
    monkeypatch.setattr(clocks, "uptime", lambda: now[0])

    def let_pass(microseconds: int) -> None:
        now[0] += microseconds

    return let_pass


def test_an_announcement_that_was_long_on_its_way_gives_no_time_away(
    open_with: Callable[..., tuple[CassandraStore, Any]], shard: Shard, passes: Callable[[int], None]
) -> None:
    store, session = open_with(SlowSession)
    directory.enter(session, store.place(shard))
    session.passes = passes
    assert store.drop_if_empty(shard) is False
    assert store.drop_if_empty(shard) is False
    passes(SECOND)
    assert store.drop_if_empty(shard) is True
    assert store.shards(shard.queue) == ()


def test_an_announcement_of_another_client_gives_no_time_away(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    shard: Shard,
    passes: Callable[[int], None],
) -> None:
    directory.enter(store.session, store.place(shard))
    assert open_store().drop_if_empty(shard) is False
    passes(SECOND)
    assert store.drop_if_empty(shard) is False
    passes(SECOND)
    assert store.drop_if_empty(shard) is True


def test_an_append_takes_an_announcement_back(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    shard: Shard,
    passes: Callable[[int], None],
) -> None:
    directory.enter(store.session, store.place(shard))
    assert store.drop_if_empty(shard) is False
    open_store().append(Append(shard, (BundleFactory(store.now)(),)))
    store.purge(shard)
    passes(SECOND)
    assert store.drop_if_empty(shard) is False
    assert store.shards(shard.queue) == (shard,)


def lost_from_the_directory(store: CassandraStore, shard: Shard) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    place = store.place(shard)
    out = (directory.CQL_OUT, place.queue, place.time_shard, place.number, None)
    assert store.session.apply([(directory.CQL_SET_LEAVING, out)])
    assert store.shards(shard.queue) == ()


def test_a_queue_is_forgotten_while_another_thread_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a client that has sent to two queues
    monkeypatch.setattr(directory, "enter", lambda *_: None)
    listed, session = directory.ListedShards(), cast("Session", None)
    one, two = Shard("one@1", 0, 0), Shard("two@1", 0, 0)
    listed.check(session, one)
    listed.check(session, two)

    def sent_meanwhile(name: str) -> tuple[str, str]:
        listed.check(session, Shard("two@1", 0, 1))
        return parted(name)

    # When it forgets one of them, while it sends to a further shard of the other one
    monkeypatch.setattr(directory, "parted", sent_meanwhile)
    listed.forget("one")
    # Then it remembers the other one
    asked = [listed.is_fresh(each) for each in (one, two, Shard("two@1", 0, 1))]
    assert asked == [False, True, True]


def test_a_deep_look_lists_what_holds_something(store: CassandraStore, shard: Shard) -> None:
    lost_from_the_directory(store, shard)
    empty = Shard(shard.queue, 0, 1)
    assert [each.empty for each in store.probe([empty, shard], deep=True)] == [True, False]
    assert store.shards(shard.queue) == (shard,)


def test_a_sweep_finds_and_lists_what_is_in_no_directory(store: CassandraStore, shard: Shard) -> None:
    lost_from_the_directory(store, Shard(shard.queue, 7, 3))
    store.sweep(Sweep(shard.queue, 0))
    assert store.shards(shard.queue) == (Shard(shard.queue, 7, 3),)


def test_a_drop_deletes_what_is_in_no_directory(store: CassandraStore, shard: Shard) -> None:
    lost_from_the_directory(store, shard)
    name = str(store.place(shard))
    assert store.drop_queue(shard.queue)
    assert store.session.read("SELECT id FROM entry WHERE shard = ?", (name,)) == []


def test_a_client_that_undoes_its_append_leaves_what_others_wrote_to_the_drop(
    store: CassandraStore,
    open_store: Callable[[], CassandraStore],
    shard: Shard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a queue that is condemned while one client is in the middle of an append, and another has sent to the shard
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    name, late = str(store.place(shard)), open_store()
    late.append(Append(shard, (BundleFactory(store.now)(),)))
    looks = iter([True])
    monkeypatch.setattr(late.listed, "is_fresh", lambda _: next(looks, False))
    assert queues.condemn(store.session, shard.queue) is not None
    # When that one notices, and undoes what it wrote
    with pytest.raises(QueueNotFound):
        late.append(Append(shard, (BundleFactory(store.now)(),)))
    # Then who finishes the drop still finds the shard
    store.sweep(Sweep(shard.queue, 0))
    assert store.session.read("SELECT id FROM entry WHERE shard = ?", (name,)) == []


def test_no_statement_searches_the_table_of_messages() -> None:
    # A range read crosses what is left of deleted partitions: it fails for all queues when a large one was deleted
    modules = [
        import_module(each.name) for each in walk_packages(cassandra.__path__, f"{cassandra.__name__}.")
    ]
    texts = {text for each in modules for text in vars(each).values() if isinstance(text, str)}
    reads = {text for text in texts if text.startswith("SELECT") and "FROM entry" in text}
    assert len(reads) > 10
    assert {text for text in reads if not re.search("WHERE shard (=|IN) ", text)} == set()
