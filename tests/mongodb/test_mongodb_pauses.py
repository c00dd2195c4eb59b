"""Looks whose queries pause on the server, while others change what they are about to find."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pymongo
import pytest
from pymongo.errors import OperationFailure

from shardq.base.shard import Shard
from shardq.storage.mongodb.read_cursors import LowWatermarks, ReadCursor
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Claim, Release, Span
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000
LOOKS = 1_500


@pytest.fixture
def pausing(mongodb_url: str) -> Iterator[None]:
    """Queries pause after every step."""
    name = "internalQueryExecYieldIterations"
    with pymongo.MongoClient(mongodb_url) as client:
        try:
            before = client.admin.command({"setParameter": 1, name: 1})["was"]
        except OperationFailure as refused:
            pytest.skip(f"the server does not let itself be told to pause: {refused}")
        yield
        client.admin.command({"setParameter": 1, name: before})


def test_a_look_sees_what_others_split_while_its_query_pauses(
    store: MongoStore,
    open_store: Callable[..., MongoStore],
    shard: Shard,
    pausing: None,
) -> None:
    # Given a bundle for each of three priorities, which are read from places of their own
    make = BundleFactory(store.now)
    bundles = [make(count=20, priority=priority) for priority in (0, 4, 9)]
    store.append(Append(shard, tuple(bundles)))
    cursor = ReadCursor([(priority, b"") for priority in range(10)], store.now(), LowWatermarks())
    due = cursor.due(store.now() + MINUTE)
    other, stopped = open_store(), threading.Event()

    def split() -> None:
        """Claim the first bundle and a half of the second, and give them back."""
        while not stopped.is_set():
            token = os.urandom(16)
            for each in other.claim(Claim(shard, token, 30, MINUTE)).slices:
                span = Span(each.bundle.id, each.first, each.count, token)
                other.release(Release(shard, (span,), 0, started=False))

    thread = threading.Thread(target=split)
    thread.start()
    # When somebody else claims a half of one of them, again and again
    rows = ShardRows(store.session, shard)
    seen = [{row.id for row in rows.first(due, 100).rows} for _ in range(LOOKS)]
    stopped.set()
    thread.join()
    # Then each look sees that one, of which a half is free all the time
    assert all(bundles[1].id in each for each in seen)
