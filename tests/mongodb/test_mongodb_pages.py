"""What is read in several requests, while others are at work between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from shardq.base.shard import Shard
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Claim, Claimed
from shardq.testing import BundleFactory

pytestmark = pytest.mark.server

MINUTE = 60_000_000


def test_a_bundle_that_moves_on_to_the_next_page_is_claimed_once(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more bundles of one message than a claim expects to need
    make = BundleFactory(store.now)
    early = [make() for _ in range(3)]
    late = [make() for _ in range(60)]
    store.append(Append(shard, tuple(late)))
    first = ShardRows.first
    pages: list[int] = []

    def interrupted(rows: ShardRows, *args: Any) -> Any:
        if pages and early:
            store.append(Append(shard, tuple(early)))
            early.clear()
        page = first(rows, *args)
        pages.append(len(page.rows))
        return page

    # When others store bundles that come before them, between two pages of a look
    monkeypatch.setattr(ShardRows, "first", interrupted)
    claimed = store.claim(Claim(shard, os.urandom(16), 50, MINUTE)).slices
    # Then no bundle is in the answer twice, and none is left out
    assert len(pages) > 1 and not early
    ids = [each.bundle.id for each in claimed]
    assert len(ids) == len(set(ids)) == 50
    rest = store.claim(Claim(shard, os.urandom(16), 100, MINUTE)).slices
    assert len({each.bundle.id for each in (*claimed, *rest)}) == 63


def test_nothing_is_passed_over_when_others_claim_what_was_on_the_first_page(
    store: MongoStore, open_store: Callable[..., MongoStore], shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more bundles than a claim expects to need, of which the first are smaller than the others
    make = BundleFactory(store.now)
    bundles = [make(count=1) for _ in range(5)] + [make(count=3) for _ in range(60)]
    store.append(Append(shard, tuple(bundles)))
    other, first = open_store(), ShardRows.first
    pages: list[int] = []
    theirs: list[Claimed] = []

    def interrupted(rows: ShardRows, *args: Any) -> Any:
        pages.append(args[-1])
        if len(pages) == 2:
            theirs.append(other.claim(Claim(shard, os.urandom(16), 5, MINUTE)))
        return first(rows, *args)

    # When another client claims the first of them, between two pages of a look
    monkeypatch.setattr(ShardRows, "first", interrupted)
    claimed = store.claim(Claim(shard, os.urandom(16), 50, MINUTE)).slices
    # Then this one has what comes next, and nothing of that is left out
    assert [each.bundle.id for each in theirs[0].slices] == [bundle.id for bundle in bundles[:5]]
    ids = [each.bundle.id for each in claimed]
    assert ids == [bundle.id for bundle in bundles[5 : 5 + len(ids)]] and len(ids) >= 15


def test_an_answer_in_several_parts_is_read_whole_whatever_other_threads_ask_meanwhile(
    store: MongoStore, shard: Shard, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more shards than the server lists in one answer
    keys = [{"q": shard.queue, "t": number, "n": 0} for number in range(300)]
    database["shardq.shard"].insert_many([{"_id": key} for key in keys])
    command = Database.command

    def interrupted(asked: Any, *args: Any, **options: Any) -> Any:
        if "getMore" not in args[0]:
            return command(asked, *args, **options)
        with store.session.client.start_session() as other:
            command(asked, "ping", session=other)
            return command(asked, *args, **options)

    # When another thread of the client has a request under way before the rest is asked for
    monkeypatch.setattr(Database, "command", interrupted)
    (told,) = store.register_consumer([shard.queue], "consumer", MINUTE)
    # Then all are read
    assert told is not None
    assert len(told.shards) == 300
