"""A claim that looks page by page, while others store what comes before."""

from __future__ import annotations

import os
from typing import Any

import pytest

from shardq.sharding.shard import Shard
from shardq.storage.mongodb.shard_rows import ShardRows
from shardq.storage.mongodb.store import MongoStore
from shardq.storage.requests import Append, Claim
from shardq.testing import BundleFactory

pytestmark = pytest.mark.mongodb

MINUTE = 60_000_000


def test_a_bundle_that_moves_on_to_the_next_page_is_claimed_once(
    store: MongoStore, shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more bundles of one message than a claim expects to need
    make = BundleFactory(store.now)
    early = [make() for _ in range(3)]
    late = [make() for _ in range(60)]
    store.append(Append(shard, tuple(late)))
    find = ShardRows.find
    pages: list[int] = []

    def interrupted(rows: ShardRows, *args: Any, **options: Any) -> Any:
        if options.get("skip") and early:
            store.append(Append(shard, tuple(early)))
            early.clear()
        page = find(rows, *args, **options)
        pages.append(len(page))
        return page

    # When others store bundles that come before them, between two pages of a look
    monkeypatch.setattr(ShardRows, "find", interrupted)
    claimed = store.claim(Claim(shard, os.urandom(16), 50, MINUTE)).slices
    # Then no bundle is in the answer twice, and none is left out
    assert len(pages) > 1 and not early
    ids = [each.bundle.id for each in claimed]
    assert len(ids) == len(set(ids)) == 50
    rest = store.claim(Claim(shard, os.urandom(16), 100, MINUTE)).slices
    assert len({each.bundle.id for each in (*claimed, *rest)}) == 63
