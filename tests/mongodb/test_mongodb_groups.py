"""Groups on MongoDB: what a crashed client holds up, what is left of a group, and who has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from shardq.base.shard import GROUP_TIME_SHARD, Shard
from shardq.errors import OutcomeUnknown, StoreUnavailable
from shardq.storage.mongodb import group_changes, group_claims, groups, transactions
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Acknowledge, Append, Bundle, Claim, Extend, Fenced, Forward, Release, Span
from shardq.testing import BundleFactory
from tests.mongodb.lossy_proxy import LossyProxy
from tests.mongodb.test_mongodb_cost import profiled

pytestmark = pytest.mark.server

MINUTE = 60_000_000


@pytest.fixture
def grouped(store: MongoStore, shard: Shard) -> Shard:
    if not store.capabilities.groups:
        pytest.skip("a single server has no groups")
    return Shard(shard.queue, GROUP_TIME_SHARD, 3)


def given(store: MongoStore, shard: Shard, *names: str) -> list[Bundle]:
    make = BundleFactory(store.now)
    bundles = [make(group=name) for name in names]
    store.append(Append(shard, tuple(bundles)))
    return bundles


def claimed(store: MongoStore, shard: Shard) -> list[bytes]:
    """Claim everything; returns the ids of the bundles."""
    return [each.bundle.id for each in store.claim(Claim(shard, os.urandom(16), 100, MINUTE)).slices]


def test_a_transaction_of_a_client_that_died_holds_up_its_own_group_only(
    store: MongoStore, grouped: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "PATIENT", transactions.BRIEF)
    bundles = given(store, grouped, *"abcdefgh")
    with database.client.start_session() as dead, dead.start_transaction():
        database[str(grouped)].update_one({"_id": bytes(16) + b"a"}, {"$inc": {"y": 1}}, session=dead)
        taken = [each for _ in range(20) for each in claimed(store, grouped)]
        # The server ends the transaction after a while, on a slow machine before this
        assert sorted({*taken, bundles[0].id}) == [each.id for each in bundles]
        dead.abort_transaction()
    assert sorted(taken + claimed(store, grouped)) == [each.id for each in bundles]


def test_an_append_that_a_dead_client_holds_up_can_be_repeated(
    store: MongoStore, grouped: Shard, database: Database
) -> None:
    given(store, grouped, "a")
    more = BundleFactory(store.now)(group="a")
    with pytest.MonkeyPatch.context() as brief:
        brief.setattr(groups.in_transaction, "__defaults__", (transactions.BRIEF,))
        with database.client.start_session() as dead, dead.start_transaction():
            database[str(grouped)].update_one({"_id": bytes(16) + b"a"}, {"$inc": {"y": 1}}, session=dead)
            with pytest.raises(StoreUnavailable) as raised:
                store.append(Append(grouped, (more,)))
            assert raised.value.retryable
    store.append(Append(grouped, (more,)))
    assert store.count(grouped).ready == 2


def test_a_purge_removes_all_groups_but_those_that_others_are_changing(
    store: MongoStore, grouped: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_changes, "PATIENT", transactions.BRIEF, raising=False)
    with pytest.MonkeyPatch.context() as brief:
        brief.setattr(groups.in_transaction, "__defaults__", (transactions.BRIEF,))
        given(store, grouped, *"aabbccdd")
        with database.client.start_session() as dead, dead.start_transaction():
            database[str(grouped)].update_one({"_id": bytes(16) + b"b"}, {"$inc": {"y": 1}}, session=dead)
            with pytest.raises(OutcomeUnknown, match="a part of it is done"):
                store.purge(grouped)
            assert store.count(grouped).ready == 2
    assert store.purge(grouped) == 2
    given(store, grouped, "a")
    assert store.purge(grouped) == 1


def test_requests_of_each_operation_on_groups(
    open_store: Callable[..., MongoStore], store: MongoStore, grouped: Shard, proxy: LossyProxy, proxied: str
) -> None:
    client = open_store(proxied)

    def asked(do: Callable[[], object]) -> list[str]:
        proxy.arm(-1)
        do()
        return proxy.commands.copy()

    def hold(limit: int) -> tuple[Span, ...]:
        token = os.urandom(16)
        slices = client.claim(Claim(grouped, token, limit, MINUTE)).slices
        return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)

    change = ["find", "update", "commitTransaction"]
    given(client, grouped, "a", "a", "b", "b", "c")
    assert asked(lambda: given(client, grouped, "a")) == ["find", "update", "insert", "commitTransaction"]
    # Beside the look: nothing is read where first bundles are all that is asked for
    hold(1)
    held: list[tuple[Span, ...]] = []
    assert asked(lambda: held.append(hold(1)))[-3:] == ["aggregate", "update", "commitTransaction"]
    (spans,) = held
    assert asked(lambda: client.extend(Extend(grouped, spans, MINUTE))) == change
    assert asked(lambda: client.release(Release(grouped, spans)))[:4] == [
        "find",
        "find",
        "update",
        "commitTransaction",
    ]
    # Else the first bundles of the groups, what follows them, and its bodies
    assert asked(lambda: held.append(hold(9)))[-5:] == [
        "find",
        "aggregate",
        "find",
        "update",
        "commitTransaction",
    ]
    # What is acked lets the next of its group go; a group that is over has no document any more
    _, spans = held
    assert asked(lambda: client.acknowledge(Acknowledge(grouped, spans[:1])))[:2] == ["find", "aggregate"]
    assert asked(lambda: client.acknowledge(Acknowledge(grouped, spans[1:]))) == [
        "find",
        "aggregate",
        "update",
        "delete",
        "commitTransaction",
    ]


@pytest.mark.parametrize("change", ["claimed", "acked", "removed", "replaced", "purged"])
def test_a_claim_takes_nothing_that_others_have_changed_since_its_look(
    open_store: Callable[..., MongoStore],
    store: MongoStore,
    grouped: Shard,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
) -> None:
    other, take = open_store(), group_claims.take_as_seen
    first, second = given(store, grouped, "a", "a")
    (of_b,) = given(store, grouped, "b")

    def change_first() -> None:
        token = os.urandom(16)
        if change == "removed":
            assert other.remove(grouped, first.id, 0)
        elif change == "purged":
            assert other.purge(grouped) == 3
        else:
            other.claim(Claim(grouped, token, 1, MINUTE))
        ack = Acknowledge(grouped, (Span(first.id, 0, 1, token),))
        if change == "acked":
            assert other.acknowledge(ack) == Fenced()
        if change == "replaced":
            instead = BundleFactory(other.now)(group="a", delay=60)
            assert other.forward(Forward(ack, Append(grouped, (instead,)), in_place=True)) == Fenced()

    def overtaken(*asked: Any) -> bool:
        monkeypatch.setattr(group_claims, "take_as_seen", take)
        change_first()
        return take(*asked)

    # Given a claim of the first messages of two groups, one of which others change after the look
    monkeypatch.setattr(group_claims, "take_as_seen", overtaken)
    token = os.urandom(16)
    taken = store.claim(Claim(grouped, token, 2, MINUTE)).slices
    assert [each.bundle.id for each in taken] == ([] if change == "purged" else [of_b.id])
    # Then what is left comes later, in order
    rest = {"claimed": [], "acked": [second.id], "removed": [second.id], "replaced": [], "purged": []}
    assert claimed(other, grouped) == rest[change]


def test_the_document_of_a_group_goes_with_its_last_message(
    store: MongoStore, grouped: Shard, database: Database
) -> None:
    given(store, grouped, "a", "a", "b")
    names = lambda: {each["r"] for each in database[str(grouped)].find({"j": {"$exists": True}})}  # noqa: E731
    assert names() == {"a", "b"}
    token = os.urandom(16)
    spans = [
        Span(each.bundle.id, each.first, each.count, token)
        for each in store.claim(Claim(grouped, token, 10, MINUTE)).slices
    ]
    store.acknowledge(Acknowledge(grouped, tuple(spans[:2])))
    assert len(names()) == 1
    store.acknowledge(Acknowledge(grouped, tuple(spans[2:])))
    assert names() == set()


def test_a_shard_without_groups_has_no_index_of_them(
    store: MongoStore, shard: Shard, grouped: Shard, database: Database
) -> None:
    store.append(Append(shard, (BundleFactory(store.now)(),)))
    given(store, grouped, "a")
    assert "group" not in database[str(shard)].index_information()
    assert "group" in database[str(grouped)].index_information()


def test_what_a_claim_and_its_ack_read_of_groups_is_a_few_times_what_they_take(
    store: MongoStore, grouped: Shard, database: Database
) -> None:
    def hold(limit: int) -> tuple[Span, ...]:
        token = os.urandom(16)
        slices = store.claim(Claim(grouped, token, limit, MINUTE)).slices
        return tuple(Span(each.bundle.id, each.first, each.count, token) for each in slices)

    # Given a group of which a claim holds many messages, and many groups with more than a claim may take
    given(store, grouped, *["one"] * 100)
    many = hold(100)
    given(store, grouped, *[f"group {number % 50}" for number in range(5000)])
    # When a claim takes some of each
    with profiled(database) as done:
        spans = hold(500)
    # Then it reads a few times as many, not as many of each group as it takes together
    assert len(spans) == 500
    assert sum(each.get("docsExamined", 0) for each in done) < 6 * 500
    # When it is acked, the many with one of each
    firsts = {store.find(grouped, span.bundle_id, 0).bundle.group: span for span in reversed(spans)}
    with profiled(database) as done:
        assert store.acknowledge(Acknowledge(grouped, (*many, *firsts.values()))) == Fenced()
    # Then nor does the ack
    assert sum(each.get("docsExamined", 0) for each in done) < 6 * 150
