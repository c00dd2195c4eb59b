"""A transaction that an interrupt keeps from its end keeps no lock."""

from __future__ import annotations

from contextlib import closing

import pytest
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from shardq.base.shard import Shard
from shardq.storage.mongodb.transactions import transact
from tests.mongodb.interruption import Killed, interrupted_client

pytestmark = pytest.mark.server


def die() -> None:
    """Interrupt the client."""
    raise Killed


def is_free(rows: Collection) -> bool:
    """Whether a transaction of another client can change the row now."""
    try:
        with rows.database.client.start_session() as other, other.start_transaction():
            rows.update_one({"_id": 1}, {"$set": {"free": True}}, session=other)
    except OperationFailure:
        return False
    return True


@pytest.mark.parametrize(("end", "commits"), [("commitTransaction", True), ("abortTransaction", False)])
def test_an_interrupt_before_the_end_of_a_transaction_is_sent_leaves_no_lock(
    mongodb_url: str,
    database: Database,
    shard: Shard,
    monkeypatch: pytest.MonkeyPatch,
    *,
    end: str,
    commits: bool,
) -> None:
    store, interruption = interrupted_client(mongodb_url, monkeypatch)
    with closing(store):
        if not store.session.has_transactions:
            pytest.skip("a standalone server has no transactions")
        rows = store.session.collection(shard.queue)
        rows.insert_one({"_id": 1})

        def change(transaction: ClientSession) -> tuple[None, bool]:
            rows.update_one({"_id": 1}, {"$set": {"changed": True}}, session=transaction)
            return None, commits

        with interruption.before(1, die), pytest.raises(Killed):
            transact(store.session, shard, change)
        assert interruption.commands[:2] == ["update", end]
        assert is_free(database[shard.queue])
        assert rows.find_one({"_id": 1}) == {"_id": 1, "free": True}
        transact(store.session, shard, change)
        assert ("changed" in (rows.find_one({"_id": 1}) or {})) is commits
