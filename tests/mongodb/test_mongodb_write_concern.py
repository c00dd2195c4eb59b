"""Nothing counts as stored that was not confirmed as asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest
from pymongo import MongoClient

from shardq.base.shard import Shard
from shardq.errors import InvalidSetting, OutcomeUnknown
from shardq.storage.keys import KeyChange
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.mongodb.url import parse
from shardq.storage.requests import Acknowledge, Append, DedupeEntry, QueueRecord
from tests.steps import STEPS, Given, counted, prepared

pytestmark = pytest.mark.server


@contextmanager
def unconfirmed(url: str, code: int = 64, commands: Sequence[str] = ("insert", "update")) -> Iterator[None]:
    """The server carries writes out and says that it could not confirm them."""
    point = {"configureFailPoint": "failCommand"}
    data = {
        "failCommands": list(commands),
        "appName": "shardq",
        "writeConcernError": {"code": code, "errmsg": "waiting for replication timed out"},
    }
    with MongoClient(url) as client:
        client.admin.command(point | {"mode": "alwaysOn", "data": data})
        try:
            yield
        finally:
            client.admin.command(point | {"mode": "off"})


@pytest.fixture
def given(store: MongoStore, shard: Shard) -> Given:
    return prepared("acknowledge", store, shard)


def test_a_send_that_was_not_confirmed_is_not_reported_as_stored(
    store: MongoStore, shard: Shard, given: Given, mongodb_url: str
) -> None:
    with unconfirmed(mongodb_url), pytest.raises(OutcomeUnknown, match="as many members"):
        store.append(Append(shard, (given.new,)))


def test_an_ack_that_was_not_confirmed_is_not_reported_as_done(
    store: MongoStore, shard: Shard, given: Given, mongodb_url: str
) -> None:
    with unconfirmed(mongodb_url), pytest.raises(OutcomeUnknown):
        STEPS["acknowledge"](store, shard, given)
    STEPS["acknowledge"](store, shard, given)
    assert counted(store, shard) == (4, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    "code", [64, 91, 11601, 11602]
)  # too slow; the server ends; an operator; it steps down
def test_a_change_that_was_not_confirmed_may_be_made_whatever_the_server_says_of_it(
    open_store: Callable[..., MongoStore], shard: Shard, mongodb_url: str, code: int
) -> None:
    # Given a queue, and a server that carries writes out and does not confirm them. With some codes the driver takes
    # the server for down until its next heartbeat, which is up to ten seconds later.
    store = open_store(_with(mongodb_url, "serverSelectionTimeoutMS=30000"))
    record = store.load_queue(shard.queue)
    assert record is not None
    changed = QueueRecord(record.name, b"other", record.version + 1)
    entry = DedupeEntry("key", "id")
    # When settings and keys are changed, then nobody says that nothing was
    for change in (
        lambda: store.update_queue(changed),
        lambda: store.compare_and_set_keys(shard.queue, [KeyChange("key", None, "id")]),
        lambda: store.reserve_keys(shard.queue, [entry], 60_000_000),
        lambda: store.register_consumer([shard.queue], "consumer", 60_000_000),
    ):
        with unconfirmed(mongodb_url, code), suppress(OutcomeUnknown):
            change()
    assert store.compare_and_set_keys(shard.queue, [KeyChange("key", None, "id")]) == ("id",)


def test_a_shard_that_is_not_surely_closed_stays_in_the_directory(
    store: MongoStore, shard: Shard, given: Given, mongodb_url: str
) -> None:
    store.purge(shard)
    with unconfirmed(mongodb_url, commands=["collMod"]):
        assert not store.drop_if_empty(shard)
    assert shard in store.shards(shard.queue)
    store.append(Append(shard, (given.new,)))
    assert counted(store, shard) == (2, 0, 0)


@pytest.mark.parametrize("command", ["createIndexes", "drop"])
def test_what_was_not_surely_made_or_dropped_is_not_told_as_done(
    store: MongoStore, shard: Shard, given: Given, mongodb_url: str, command: str
) -> None:
    with unconfirmed(mongodb_url, commands=[command]), pytest.raises(OutcomeUnknown, match="as many members"):
        if command == "drop":
            store.drop_queue(shard.queue)
        else:
            store.acknowledge(Acknowledge(shard, given.spans, keep=True))  # makes the index of the history
    if command == "drop":
        assert store.load_queue(shard.queue) is None
    else:
        store.acknowledge(Acknowledge(shard, given.spans, keep=True))
        assert counted(store, shard) == (4, 0, 4)


def test_writes_wait_for_the_majority_and_the_journal(mongodb_url: str) -> None:
    plain, other = MongoStore(parse(mongodb_url)), MongoStore(parse(_with(mongodb_url, "w=2")))
    plain.now()
    other.now()
    assert plain.session.write_concern == {"w": "majority", "j": True}
    assert other.session.write_concern == {"w": 2, "j": True}
    plain.close()
    other.close()


@pytest.mark.parametrize(
    "options", ["w=1", "w=0", "journal=false", "w=majority&journal=false", "w=2&journal=false"]
)
def test_a_url_that_lets_confirmed_writes_be_lost_is_refused_with_the_remedy(
    mongodb_url: str, options: str
) -> None:
    with pytest.raises(InvalidSetting, match=r"leave (w|journal) out"):
        parse(_with(mongodb_url, options))


def test_the_diagnosis_names_what_weakens_a_promise(mongodb_url: str) -> None:
    store = MongoStore(parse(_with(mongodb_url, "w=two&readPreference=secondaryPreferred")))
    findings = {finding.name: finding for finding in store.diagnose()}
    store.close()
    assert [name for name in ("write concern", "read preference") if findings[name].ok] == []
    assert "leave readPreference out" in findings["read preference"].remedy
    assert findings["storage"].value == "wiredTiger"
    alone = "replicaSet" not in mongodb_url
    assert findings["transactions"].value.startswith("none" if alone else "yes")


def test_the_diagnosis_is_content_with_what_is_set_by_default(store: MongoStore) -> None:
    findings = {finding.name: finding.ok for finding in store.diagnose()}
    assert all(findings[name] for name in ("write concern", "read preference", "transactions", "storage"))


def _with(url: str, options: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{options}"
